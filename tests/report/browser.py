"""A page in a real browser without a window: what it asked for, what it said, what a check of accessibility finds.

The browser is the one that ``RATCHET_BROWSER`` names, else a chromium on PATH.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
WIDTHS, SCHEMES = (360, 820, 1440), ("light", "dark")
_HEIGHT = 900
_UNDRAWN = ".chart:not(:has(svg))"
_WIDER = """[...document.querySelectorAll('body *')].filter(one => {
  if (one.closest('.wide, .diff, .code, .skip') && !one.matches('.wide, .diff, .code')) return false;
  return one.getBoundingClientRect().right > document.documentElement.clientWidth + 1 && one.getClientRects().length;
}).map(one => one.tagName + '.' + one.className).slice(0, 5)"""


@dataclass(frozen=True, kw_only=True)
class Look:
    """What one visit to a page showed."""

    requests: tuple[str, ...]
    """Of the page itself, too."""
    errors: tuple[str, ...]
    """Of the console, of scripts, and what the page's own policy forbade."""
    violations: tuple[str, ...]
    """Of axe's rules, each with the first element that breaks it."""
    wider: tuple[str, ...]
    """Elements that are wider than the screen; those in a box that scrolls by itself left out."""


def browser_path() -> str | None:
    """The browser, or None where there is none."""
    return os.environ.get("RATCHET_BROWSER") or next(filter(None, map(shutil.which, NAMES)), None)


@contextmanager
def chromium() -> Iterator[Any]:
    """The browser, running; playwright's ``Browser``."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path(), args=["--no-sandbox", "--disable-gpu"])
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def visit(browser: Any, url: str, *, width: int = 1440, scheme: str = "light") -> Iterator[tuple[Any, Look]]:
    """A page with its charts drawn, and what it showed; playwright's ``Page``."""
    from axe_playwright_python.sync_playwright import Axe

    context = browser.new_context(viewport={"width": width, "height": _HEIGHT}, color_scheme=scheme)
    try:
        page, errors, requests = context.new_page(), [], []
        page.on(
            "console", lambda message: errors.append(message.text) if message.type in ("error", "warning") else None
        )
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(url)
        page.locator(_UNDRAWN).first.wait_for(state="detached")
        found = Axe().run(page).response["violations"]
        yield (
            page,
            Look(
                requests=tuple(requests),
                errors=tuple(errors),
                violations=tuple(f"{one['id']}: {one['nodes'][0]['html'][:200]}" for one in found),
                wider=wider(page),
            ),
        )
    finally:
        context.close()


def wider(page: Any) -> tuple[str, ...]:
    """Elements that are wider than the screen now; those in a box that scrolls by itself left out."""
    return tuple(page.evaluate(_WIDER))
