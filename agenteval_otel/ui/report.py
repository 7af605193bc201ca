"""A page as one file that needs nothing else.

Its scripts and styles are in the file, each allowed by its hash.
"""

from __future__ import annotations

import base64
import hashlib
import re
from typing import Final

from agenteval_otel.ui.assets import HERE, VENDOR

_LINK: Final = re.compile(r'<link rel="stylesheet" href="/(static|vendor)/([\w.]+)">')
_SCRIPT: Final = re.compile(r'<script src="/(static|vendor)/([\w.]+)" defer></script>')
_HEAD: Final = "<head>"


def single_file(page: str) -> str:
    """Return the page with what it links to.

    Opened from disk, the page runs only these scripts and sends no requests.
    """
    hashes: dict[str, list[str]] = {"script": [], "style": []}
    scripts: list[str] = []

    def content(match: re.Match[str], kind: str) -> str:
        folder = VENDOR if match[1] == "vendor" else HERE / "static"
        text = (folder / match[2]).read_text(encoding="utf-8")
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        hashes[kind].append(f"'sha256-{digest}'")
        return text

    def style(match: re.Match[str]) -> str:
        return f"<style>{content(match, 'style')}</style>"

    def script(match: re.Match[str]) -> str:
        scripts.append(f"<script>{content(match, 'script')}</script>")
        return ""

    page = _SCRIPT.sub(script, _LINK.sub(style, page))
    rules = " ".join(f"{kind}-src {' '.join(values)};" for kind, values in hashes.items())
    policy = f'<meta http-equiv="content-security-policy" content="default-src \'none\'; img-src data:; {rules}">'
    # The scripts stand at the end: within the page `defer` has no effect.
    page = page.replace(_HEAD, f"{_HEAD}{policy}", 1)
    return page.replace("</body>", f"{''.join(scripts)}</body>", 1)
