"""Builds the site: ``python -m tools.docs [FOLDER]``, by default ``site/``. Offline; a warning is an error.

Needs the ``docs`` extra, which the lock file has. ``site/index.html`` opens from the disk, search included.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.exceptions import Abort

from tools.documents import ROOT


def make(folder: Path) -> int:
    """Builds the site into ``folder`` and returns how many warnings there were."""
    import logging

    from mkdocs.utils import CountHandler

    counter = CountHandler()
    counter.setLevel(logging.WARNING)
    log = logging.getLogger("mkdocs")
    log.addHandler(counter)
    lines = logging.StreamHandler()
    lines.setLevel(logging.WARNING)
    log.addHandler(lines)
    try:
        build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder)))
    finally:
        log.removeHandler(counter)
        log.removeHandler(lines)
    return sum(count for _, count in counter.get_counts())


def main(given: Sequence[str]) -> int:
    folder = Path(given[0]).resolve() if given else ROOT / "site"
    try:
        warnings = make(folder)
    except Abort as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{folder}: {sum(1 for _ in folder.rglob('*.html'))} pages, {warnings} warnings")
    return int(bool(warnings))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
