"""The built-in response formats.

Every module of this package registers its own when it is imported.
"""

import pkgutil
from importlib import import_module

__all__ = ()

for _module in pkgutil.iter_modules(__path__, f"{__name__}."):
    import_module(_module.name)
