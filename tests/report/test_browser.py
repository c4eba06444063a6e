"""The page in a real browser: nothing is asked for, nothing is wrong, nothing of the author's runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ratchet.report.page import file_names, index_page, page
from ratchet.report.story import Story, story
from tests.report.browser import SCHEMES, WIDTHS, browser_path, chromium, visit, wider
from tests.report.samples import HOSTILE, baseline, evidence, many, material, measured, reverted, row

pytestmark = pytest.mark.skipif(
    browser_path() is None, reason="no chromium here: RATCHET_BROWSER or PATH would name it"
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as running:
        yield running


def hostile() -> Story:
    rows = [
        reverted(number, 3.0, note=text, reason=text, id=text, compiler=text)
        for number, text in enumerate(HOSTILE, start=2)
    ]
    sources = {one.kernel_blob: HOSTILE[place % len(HOSTILE)] * (place + 1) for place, one in enumerate(rows)}
    known = material([baseline(), *rows], evidence=evidence(HOSTILE[0]), sources=sources, kernel=HOSTILE[1])
    return story(known)


LEDGERS = {
    "long": lambda: story(material(many(40), evidence=evidence())),
    "empty": lambda: story(material([])),
    "failures": lambda: story(material([row(1, None), row(2, None)])),
    "measured": lambda: story(material([baseline(1, 4.0), measured(2, 9.0), measured(3, 5.0, "1.5")])),
    "hostile": hostile,
}


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pages")
    for name, ledger in LEDGERS.items():
        (folder / f"{name}.html").write_text(page(ledger()))
    return folder


def looks() -> list[tuple[str, int, str]]:
    return [("long", width, scheme) for width in WIDTHS for scheme in SCHEMES] + [
        (name, 360, SCHEMES[place % 2]) for place, name in enumerate(LEDGERS) if name != "long"
    ]


@pytest.mark.parametrize(("name", "width", "scheme"), looks())
def test_it_is_whole_at_every_width(browser: Any, pages: Path, name: str, width: int, scheme: str) -> None:
    url = (pages / f"{name}.html").as_uri()
    with visit(browser, url, width=width, scheme=scheme) as (shown, look):
        assert look.requests == (url,)
        assert look.errors == ()
        assert look.violations == ()
        assert look.wider == ()
        shown.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
        assert wider(shown) == ()
        assert shown.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert shown.evaluate("window.hacked") is None


def test_no_script_of_the_authors_could_run_even_if_it_were_there(browser: Any, pages: Path) -> None:
    with visit(browser, (pages / "long.html").as_uri()) as (shown, _):
        shown.evaluate(
            "const one = document.createElement('script'); one.textContent = 'window.hacked = 1';"
            "document.body.append(one); document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=hacked=1>')"
        )
        shown.wait_for_timeout(100)
        assert shown.evaluate("window.hacked") is None


def test_an_answer_leads_to_its_experiment(browser: Any, pages: Path) -> None:
    with visit(browser, (pages / "long.html").as_uri(), width=360) as (shown, _):
        link = shown.locator(".answers a").first
        target = link.get_attribute("href")
        link.click()
        shown.locator(f"{target} details[open]").wait_for()  # it is opened once the address has changed
        shown.locator(f"{target} .diff").wait_for()


def test_what_a_point_says_is_text(browser: Any, pages: Path) -> None:
    with visit(browser, (pages / "hostile.html").as_uri()) as (shown, _):
        point = shown.locator("#chart-trajectory .mark-symbol.role-mark path").nth(1)
        point.scroll_into_view_if_needed()
        box = point.bounding_box()
        shown.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        tip = shown.locator("#vg-tooltip-element")
        tip.wait_for()
        assert "<" in tip.inner_text()
        assert tip.locator("script, img, a, b").count() == 0
        shown.mouse.down()
        shown.mouse.up()
        shown.locator("tbody.x details[open]").wait_for()


def test_the_table_can_be_narrowed_by_keyboard(browser: Any, pages: Path) -> None:
    with visit(browser, (pages / "long.html").as_uri()) as (shown, _):
        shown.locator("#show").focus()
        shown.keyboard.type("failed")
        assert shown.locator("tbody.x:visible").count() == shown.locator("tbody.x[data-outcome=failed]").count() > 0
        assert "of 40" in shown.locator("#shown").inner_text()


def test_the_index_of_a_gallery(browser: Any, tmp_path: Path) -> None:
    stories = [LEDGERS["long"](), LEDGERS["failures"](), hostile()]
    files = file_names([one.material.kernel for one in stories])
    (tmp_path / "index.html").write_text(index_page(stories, files))
    url = (tmp_path / "index.html").as_uri()
    with visit(browser, url, width=360) as (shown, look):
        assert (look.requests, look.errors, look.violations, look.wider) == ((url,), (), (), ())
        assert shown.locator(".gallery li").count() == 3
