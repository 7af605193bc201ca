"""The built-in dialects: every module of this package registers its mapper when it is imported.

The conventions sort first by name, so they are tried last: a dialect that extends them is read by
its own mapper.
"""

import pkgutil
from importlib import import_module

__all__ = ()

for _module in sorted(module.name for module in pkgutil.iter_modules(__path__, f"{__name__}.")):
    import_module(_module)
