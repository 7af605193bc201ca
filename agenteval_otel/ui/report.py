"""A page as one file that needs nothing else.

Its styles are in the file, allowed by their hash. It has no script.
"""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent
_LINK: Final = re.compile(r'<link rel="stylesheet" href="/static/([\w.]+)">')
_HEAD: Final = "<head>"


def single_file(page: str) -> str:
    """Return the page with the styles that it links to.

    Opened from disk, the page runs no script and sends no requests.
    """
    hashes: list[str] = []

    def style(match: re.Match[str]) -> str:
        text = (HERE / "static" / match[1]).read_text(encoding="utf-8")
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        hashes.append(f"'sha256-{digest}'")
        return f"<style>{text}</style>"

    page = _LINK.sub(style, page)
    rules = f"default-src 'none'; style-src {' '.join(hashes)}"
    policy = f'<meta http-equiv="content-security-policy" content="{rules}">'
    return page.replace(_HEAD, f"{_HEAD}{policy}", 1)
