"""Makes a report of many experiments and looks at it in a browser: size, first paint, requests, errors, accessibility.

    python -m benchmarks.report [--experiments N] [--out DIR] [--json FILE]

Each of three widths is looked at in both colour schemes. ``--out`` keeps the page and a screenshot of each. Needs a
chromium: ``RATCHET_BROWSER`` names it, or it is on PATH.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from benchmarks.lib.browser import SCHEMES, WIDTHS, browser_path, chromium, screenshot, visit
from benchmarks.lib.command import command
from benchmarks.lib.table import show
from ratchet.report.page import page
from ratchet.report.story import story
from tests.report.samples import evidence, many, material


def main() -> int:
    parser = command(__doc__)
    parser.add_argument("--experiments", type=int, default=200, metavar="N", help="default 200")
    parser.add_argument("--out", type=Path, metavar="DIR", help="keep the page and the screenshots there")
    options = parser.parse_args()
    if browser_path() is None:
        print("there is no browser: name a chromium in RATCHET_BROWSER", file=sys.stderr)
        return 1
    rows = many(options.experiments)
    sources = {one.kernel_blob: "\n".join(f"{one.id}: line {line}" for line in range(60)) for one in rows}
    story_of_all = story(material(rows, sources=sources, evidence=evidence()))
    page(story_of_all)  # bundles the library of charts, once a process
    begun = time.monotonic()
    data = page(story_of_all).encode()
    made_s = time.monotonic() - begun
    with tempfile.TemporaryDirectory() as scratch, chromium() as browser:
        folder = options.out or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "report.html").write_bytes(data)
        looks = []
        for width in WIDTHS:
            for scheme in SCHEMES:
                url = (folder / "report.html").resolve().as_uri()
                with visit(browser, url, width=width, scheme=scheme) as (shown, look):
                    screenshot(shown, folder / f"{width}-{scheme}.png")
                looks.append(
                    {
                        "width": look.width,
                        "scheme": look.scheme,
                        "MB": len(data) / 1e6,
                        "made in s": made_s,
                        "first paint ms": look.paint_ms,
                        "requests beside the page": len(look.requests) - 1,
                        "console errors": len(look.errors),
                        "axe violations": len(look.violations),
                        "wider than the screen": len(look.wider),
                    }
                )
    show(f"report of {options.experiments} experiments", looks, json_file=options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
