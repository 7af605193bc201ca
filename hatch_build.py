"""Build hook: a distribution has the scripts of the pages, or is not built."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_WITHOUT = "AGENTEVAL_BUILD_WITHOUT_UI"


class PageScripts(BuildHookInterface[Any]):
    """Fetches the scripts that are not in the repository, and refuses to build without them.

    An editable installation needs none: `agenteval-otel ui` says there what is missing.
    """

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Raise where they are missing and cannot be fetched."""
        if version == "editable" or os.environ.get(_WITHOUT):
            return
        check = "from agenteval_otel.ui.assets import check_assets; check_assets()"
        if self._run("-c", check).returncode == 0:
            return
        fetched = self._run("-m", "agenteval_otel.ui.assets")
        if fetched.returncode != 0:
            raise RuntimeError(
                "the scripts of `agenteval-otel ui` are missing and could not be fetched "
                f"({fetched.stderr.strip()[-500:]}). Run `python -m agenteval_otel.ui.assets` (needs "
                f"npm) and build again, or set {_WITHOUT}=1 to build without the pages"
            )

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=self.root,
            env={**os.environ, "PYTHONPATH": self.root},
            capture_output=True,
            text=True,
            check=False,
        )
