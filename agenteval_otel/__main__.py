"""``python -m agenteval_otel`` is ``agenteval-otel``."""

import os
import sys


def _leave_out_current_folder() -> None:
    """Remove the current folder, which `python -m` puts first, unless the package is in it."""
    package_folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    try:
        folder = os.getcwd()
    except OSError:  # it was removed
        folder = ""
    if sys.flags.safe_path or folder == package_folder:
        return
    if sys.path[0] in ("", folder):
        del sys.path[0]


_leave_out_current_folder()

from agenteval_otel.cli import main  # noqa: E402

sys.exit(main())
