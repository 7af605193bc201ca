"""Makes the pictures of docs/ui.md, of made-up traffic in Chromium: `uv run python -m docs.ui_pictures`."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.ui.served import served  # noqa: E402
from tests.ui.stored import store, traffic  # noqa: E402

PICTURES = {
    "overview": ("/", "light", 1280, 560), "criterion": ("/criterion?name=helpfulness", "dark", 1280, 900),
    "label": ("/label?criterion=helpfulness", "light", 1100, 620),
}  # fmt: skip
"""Each with its page, theme, width and height."""


def main() -> None:
    """Write ``docs/images/ui-*.png``."""
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        path = Path(folder, "agenteval.db")
        store(path, traffic(900))
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        with served(path) as address:
            for name, (page_path, scheme, width, height) in PICTURES.items():
                page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
                page.goto(address)
                page.goto(address.split("/?")[0] + page_path)
                page.wait_for_timeout(500)
                page.locator(".place").evaluate("element => { element.textContent = 'agenteval.db' }")
                page.screenshot(path=ROOT / "docs" / "images" / f"ui-{name}.png")
        browser.close()


if __name__ == "__main__":
    main()
