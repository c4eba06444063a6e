"""``ratchet report [FILE]``"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path

from ratchet.loop.history import History
from ratchet.loop.ledger import NAME, writing
from ratchet.process.boot import home
from ratchet.report import gallery
from ratchet.report.document import document
from ratchet.report.gather import kernels, material
from ratchet.report.page import page
from ratchet.report.story import Story, story
from ratchet.values.status import Refusal, Status
from ratchet.view.document import dumps

DEFAULT, KERNEL = "report.html", "kernel.py"
_INDEX = "index.html"

Say = Callable[[str], None]


def command(options: argparse.Namespace, *, root: Path, say: Say) -> int:
    """Write the page of one kernel file, or of all of them with an index; with ``--json`` print the same as numbers."""
    if options.gallery is not None:
        if options.file or options.output or options.json:
            raise Refusal(Status.USAGE, "--gallery writes a page for every kernel file: it takes no FILE, -o or --json")
        return _gallery(root, options.gallery, say)
    overview = story(material(root, which(root, options.file)))
    if options.json:
        print(dumps(document(overview)))
    if options.output is not None or not options.json:
        write(options.output or Path(DEFAULT), page(overview).encode(), root=root, say=say)
    return Status.PASS.exit_code


def which(root: Path, given: Path | None) -> str:
    """The kernel file as the ledger names it: the one given, else ``kernel.py``, else that of the newest row.

    Raises:
        Refusal: NOT_FOUND for a file that is neither there nor in the ledger.
    """
    known = kernels(root)
    if given is None:
        return KERNEL if KERNEL in known or not known or (root / KERNEL).is_file() else known[-1]
    for name in (given.as_posix(), _inside(root, Path.cwd() / given), _inside(root, root / given)):
        if name in known:
            return name
    if given.is_file() or (root / given).is_file():
        return _inside(root, given.resolve() if given.is_file() else root / given)
    listed = ", ".join(known[:5]) + (f" and {len(known) - 5} more" if len(known) > 5 else "")
    has = f"it has rows of {listed}" if known else f'it is empty: `{home.PROGRAM} "baseline"` writes its first row'
    raise Refusal(Status.NOT_FOUND, f"{given} is no file, and {NAME} has no row of it; {has}")


def _inside(root: Path, path: Path) -> str:
    return Path(os.path.relpath(os.path.realpath(path), os.path.realpath(root))).as_posix()


def _gallery(root: Path, folder: Path, say: Say) -> int:
    known = kernels(root)
    files, stories = gallery.names(known), []
    folder.mkdir(parents=True, exist_ok=True)
    for kernel, file in zip(known, files, strict=True):
        overview: Story = story(material(root, kernel))
        _replace(folder / file, page(overview, index=_INDEX).encode())
        stories.append(overview)
    write(folder / _INDEX, gallery.index(stories, files).encode(), root=root, say=say)
    return Status.PASS.exit_code


def write(path: Path, data: bytes, *, root: Path, say: Say) -> None:
    """Write a file and say where; also that it would be in the way of the next experiment, where it is.

    Raises:
        Refusal: USAGE where there is no such folder, or it is a folder; NO_SPACE or LEDGER_UNWRITABLE.
    """
    if path.is_dir() or not path.parent.is_dir():
        what = "is a folder, wanted a file" if path.is_dir() else f"cannot be written: there is no {path.parent}"
        raise Refusal(Status.USAGE, f"-o: {path} {what}")
    _replace(path, data)
    say(f"wrote {path} ({len(data) / 1e6:.1f} MB)")
    name = _inside(root, path.resolve())
    if any(one.code == "??" and one.path == name for one in History(root).checks.differences()):
        say(f"git does not ignore {name}, and the next experiment would be refused because of it: add it to .gitignore")


def _replace(path: Path, data: bytes) -> None:
    beside = path.with_name(f".{path.name}.part")
    with writing(str(path)):
        if path.exists() and not path.is_file():  # a device or a pipe
            path.write_bytes(data)
            return
        beside.write_bytes(data)
        beside.replace(path)
