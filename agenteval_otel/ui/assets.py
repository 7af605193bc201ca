"""The files of published packages that the pages need.

`python -m agenteval_otel.ui.assets` fetches them with npm, once in a clone.

``assets.json`` pins version and integrity of each package. An installed wheel has the files
already.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any, Final

from agenteval_otel.errors import ConfigurationError

HERE: Final = Path(__file__).resolve().parent
VENDOR: Final = HERE / "vendor"
COMMAND: Final = "python -m agenteval_otel.ui.assets"
_LIMIT_S: Final = 120.0


def pinned() -> dict[str, Any]:
    assets: dict[str, Any] = json.loads((HERE / "assets.json").read_text(encoding="utf-8"))
    return assets


def check_assets() -> None:
    """Raise `ConfigurationError` with the command that fetches them if files are missing."""
    names: list[str] = []
    for asset in pinned().values():
        names.extend(asset["files"].values())
    missing = [name for name in names if not (VENDOR / name).is_file()]
    if missing:
        raise ConfigurationError(
            f"the pages need {', '.join(missing)}, fetched once by: {COMMAND} (needs npm)"
        )


def fetch(folder: Path = VENDOR) -> None:
    """Fetch the packages with ``npm pack``, check them, and keep the files that the pages use.

    Blocks.

    Raises `ConfigurationError` if npm is missing or fails, or if a package differs from the pinned
    package.
    """
    if shutil.which("npm") is None:
        raise ConfigurationError("npm is not on the PATH: it fetches the scripts of the pages")
    folder.mkdir(exist_ok=True)
    for name, asset in pinned().items():
        for path, content in package_files(name, asset).items():
            (folder / asset["files"][path]).write_bytes(content)


def package_files(name: str, asset: dict[str, Any]) -> dict[str, bytes]:
    """Return the files of a package of npm, by their paths in it."""
    package = f"{name}@{asset['version']}"
    with tempfile.TemporaryDirectory() as work:
        done = subprocess.run(
            ["npm", "pack", package, "--silent"],
            cwd=work,
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            check=False,
        )
        packed = list(Path(work).glob("*.tgz"))
        if done.returncode or not packed:
            reason = done.stderr.strip()[-500:] or "no package"
            raise ConfigurationError(f"npm pack {package}: {reason}")
        data = packed[0].read_bytes()
    digest = f"sha512-{base64.b64encode(hashlib.sha512(data).digest()).decode()}"
    if digest != asset["integrity"]:
        raise ConfigurationError(
            f"{package} is another package than assets.json pins: its hash is {digest}"
        )
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        members = {path: archive.extractfile(f"package/{path}") for path in asset["files"]}
        return {path: member.read() for path, member in members.items() if member is not None}


if __name__ == "__main__":
    try:
        fetch()
    except ConfigurationError as error:
        sys.exit(f"error: {error}")
    sys.stdout.write(f"fetched {', '.join(sorted(path.name for path in VENDOR.iterdir()))}\n")
