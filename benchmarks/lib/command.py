"""The options that every benchmark has, and how it says how far it is."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from pathlib import Path


def command(doc: str | None, *, quick: str = "") -> ArgumentParser:
    """A parser of ``--json FILE`` and, where ``quick`` says what it leaves out, of ``--quick``.

    Args:
        doc: the docstring of the command's module, whose first line describes it.
        quick: help of ``--quick``.
    """
    parser = ArgumentParser(description=(doc or "").partition("\n")[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the tables there, too: rows by title")
    if quick:
        parser.add_argument("--quick", action="store_true", help=quick)
    return parser


def say(text: str) -> None:
    """Progress, which is not the result."""
    print(text, file=sys.stderr, flush=True)
