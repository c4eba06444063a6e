"""Builds the site: ``python -m tools.docs [FOLDER]``, by default ``site/``. Offline; a warning is an error.

Needs the ``docs`` extra, which the lock file has. Pages open from the disk; the search wants a server, such as
``python -m http.server -d site``.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.exceptions import Abort
from mkdocs.utils import CountHandler

from tools.documents import ROOT

SITEMAP = "sitemap.xml"
"""A file that every site has."""


def make(folder: Path) -> int:
    """Builds the site into ``folder``, which is emptied first, and returns how many warnings there were.

    Raises:
        ValueError: the folder holds something else than a site.
    """
    if folder.exists() and not (folder / SITEMAP).is_file() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"{folder} holds something else than a site: name a folder that is new or empty")
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
    parser = argparse.ArgumentParser(prog="python -m tools.docs", description="Build the site of docs/, offline.")
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "site", metavar="FOLDER", help="default: site")
    folder = parser.parse_args(given).folder.resolve()
    try:
        warnings = make(folder)
    except (Abort, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{folder}: {sum(1 for _ in folder.rglob('*.html'))} pages, {warnings} warnings")
    return int(bool(warnings))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
