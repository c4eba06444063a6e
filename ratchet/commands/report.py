"""``report``, ``serve`` and ``plot``: the history of a kernel as a page, live, and as charts."""

from __future__ import annotations

import argparse
import errno
import hashlib
import os
from collections.abc import Callable
from pathlib import Path, PurePath

from ratchet.commands.options import json_option, kernel_file
from ratchet.loop.history import History
from ratchet.loop.ledger import NAME
from ratchet.loop.workspace import under_way
from ratchet.process import paths
from ratchet.process.boot import home
from ratchet.process.root import Root
from ratchet.report import words
from ratchet.report.gather import Model, kernels, material
from ratchet.report.live import LOOPBACK, LiveServer
from ratchet.report.story import Material, Story, story
from ratchet.report.tables import document
from ratchet.search import progress
from ratchet.values import Row
from ratchet.values.status import Refusal, Status
from ratchet.view.document import dumps
from ratchet.view.text import clean
from ratchet.wiring import DUMPS, JudgeFunction, modelled_again

DEFAULT, KERNEL = "report.html", "kernel.py"
_INDEX = "index.html"

Say = Callable[[str], None]


def report_options(parser: argparse.ArgumentParser) -> None:
    """A kernel file, and where the page goes."""
    kernel_file(parser, name="file")
    parser.add_argument("-o", "--output", type=Path, metavar="HTML", help="default: report.html, here")
    json_option(parser, "print the numbers as one JSON document; a page only with -o")
    parser.add_argument("--gallery", type=Path, metavar="DIR", help="instead: one page for each kernel, and an index")
    _no_judge(parser)


def _no_judge(parser: argparse.ArgumentParser) -> None:
    what = "model nothing, though the current kernel's cycles and VMEM are not on this disk"
    parser.add_argument("--no-judge", action="store_true", help=what)


def _model(options: argparse.Namespace, root: Path, function: JudgeFunction | None, say: Say) -> Model:
    """Models a kernel for a page, once, also where that fails; nothing where nobody wants that."""
    failed: set[str] = set()

    def model(row: Row, source: bytes) -> Path | None:
        if function is None or options.no_judge or row.id in failed:
            return None
        folder = modelled_again(root, row, source, function, say)
        if folder is None:
            failed.add(row.id)
        return folder

    return model


def report_command(options: argparse.Namespace, *, root: Path, say: Say, function: JudgeFunction | None = None) -> int:
    """Write the page of one kernel file, or of all of them with an index; with ``--json`` print the same as numbers."""
    from ratchet.report.page import page  # imports Altair, which reading a command line need not wait for

    if options.gallery is not None:
        if options.file or options.output or options.json:
            raise Refusal(Status.USAGE, "--gallery writes a page for every kernel file: it takes no FILE, -o or --json")
        return _gallery(root, options.gallery, say)
    overview = story(material(root, which(root, options.file), _model(options, root, function, say)))
    if options.json:
        print(dumps(document(overview)))
    if options.output is not None or not options.json:
        write(options.output or Path(DEFAULT), page(overview).encode(), say=say)
    return Status.PASS.exit_code


def which(root: Path, given: Path | None) -> str:
    """The kernel file as the ledger names it: the one given, else ``kernel.py``, else that of the newest row.

    Raises:
        Refusal: NOT_FOUND for a file that is neither there nor in the ledger.
    """
    known = kernels(root)
    if given is None:
        return KERNEL if KERNEL in known or not known or paths.is_file(root / KERNEL) else known[-1]
    for name in (given.as_posix(), _inside(root, Path.cwd() / given), _inside(root, root / given)):
        if name in known:
            return name
    if paths.is_file(given) or paths.is_file(root / given):
        return _inside(root, given.resolve() if paths.is_file(given) else root / given)
    listed = ", ".join(known[:5]) + (f" and {len(known) - 5} more" if len(known) > 5 else "")
    has = f"it has rows of {listed}" if known else f'it is empty: `{home.PROGRAM} "baseline"` writes its first row'
    raise Refusal(Status.NOT_FOUND, f"{given} is no file, and {NAME} has no row of it; {has}")


def _inside(root: Path, path: Path) -> str:
    return Path(os.path.relpath(os.path.realpath(path), os.path.realpath(root))).as_posix()


def _gallery(root: Path, folder: Path, say: Say) -> int:
    from ratchet.report.page import file_names, index_page, page

    known = kernels(root)
    files, stories = file_names(known), []
    try:
        paths.make_folder(folder)
    except OSError as error:
        raise Refusal(Status.USAGE, f"--gallery: {folder} cannot be a folder: {error.strerror}") from None
    for kernel, file in zip(known, files, strict=True):
        overview: Story = story(material(root, kernel))
        write(folder / file, page(overview, index=_INDEX).encode(), say=lambda _: None)
        stories.append(overview)
    write(folder / _INDEX, index_page(stories, files).encode(), say=say)
    return Status.PASS.exit_code


def write(path: Path, data: bytes, *, say: Say) -> None:
    """Write a file and say where.

    Raises:
        Refusal: USAGE for a place where no file can be; NO_SPACE.
    """
    try:
        place, name = paths.of(path)
        if place.is_folder(name):
            raise Refusal(Status.USAGE, f"-o: {path} is a folder, wanted a file")
        if not place.is_folder(PurePath(name).parent):
            raise Refusal(Status.USAGE, f"-o: {path} cannot be written: there is no folder {path.parent}")
        paths.write_named(path, data)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise Refusal(Status.USAGE, f"-o: {path} cannot be written: {error.strerror}; name another place") from None
    say(f"wrote {path} ({len(data) / 1e6:.1f} MB)")


def serve_options(parser: argparse.ArgumentParser) -> None:
    """A kernel file and a port."""
    kernel_file(parser, name="file")
    parser.add_argument("--port", type=_port, default=8790, metavar="N", help="default 8790; 0 for any that is free")
    _no_judge(parser)


def _port(text: str) -> int:
    """Reads the number of a port."""
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and int(text) < 1 << 16):
        raise argparse.ArgumentTypeError(f"{text!r:.60}, wanted a port from 0 to 65535")
    return int(text)


def serve_command(options: argparse.Namespace, *, root: Path, say: Say, function: JudgeFunction | None = None) -> int:
    """Serve the report of one kernel file, as it is now, until it is interrupted."""
    kernel = which(root, options.file)
    history, model = History(root), _model(options, root, function, say)
    material(root, kernel, model)  # before the first page is asked for
    try:
        server = LiveServer(
            options.port, page=lambda: _page(root, kernel, model), version=lambda: _version(history, root)
        )
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EACCES):
            raise
        why = "is in use" if error.errno == errno.EADDRINUSE else "may not be opened"
        raise Refusal(
            Status.USAGE, f"port {options.port} of {LOOPBACK} {why}: give another with --port, or 0 for any free one"
        ) from None
    with server:
        say(f"the report of {kernel}, live, for this machine alone: {server.url} (Ctrl-C ends it)")
        try:
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            say("ended")
    return Status.PASS.exit_code


def _page(root: Path, kernel: str, model: Model) -> str:
    from ratchet.report.page import page

    try:
        known = material(root, kernel, model)
    except Refusal as refusal:  # a ledger that somebody edits while it is shown
        known = Material(repository=root.name, kernel=kernel, rows=(), broken=(refusal.status, refusal.message))
    return page(story(known), live=True)


def _version(history: History, root: Path) -> str:
    """Changes with the ledger, with HEAD, with what is under way, and when evidence comes or goes."""
    parts = [under_way(history), *map(str, progress.under_way(root)), history.refs.resolve("HEAD") or ""]
    for path in (root / NAME, root / DUMPS):
        try:
            state = Root(root).state(path)
            parts.append(f"{state.st_mtime_ns} {state.st_size}" if state else "")
        except OSError:
            parts.append("")
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


# --- plot ---


def plot_options(parser: argparse.ArgumentParser) -> None:
    """A chart, a file and a kernel file."""
    from ratchet.report.charts import PLOTS  # imports Altair, which only this command needs

    parser.add_argument("what", choices=tuple(PLOTS), help="which chart")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help="ends in .svg or .png")
    kernel_file(parser)


def plot_command(options: argparse.Namespace, *, root: Path, say: Say) -> int:
    """Draw one chart of a kernel's ledger or of its current modelled run."""
    from ratchet.report import charts
    from ratchet.report.drawing import FORMATS, drawn

    if options.output.suffix.removeprefix(".").lower() not in FORMATS:
        raise Refusal(Status.USAGE, f"-o: got {options.output.name!r:.60}, wanted a name that ends in .svg or .png")
    overview = story(material(root, which(root, options.kernel)))
    plot, kernel = charts.PLOTS[options.what], clean(overview.material.kernel, 60)
    spec = plot.draw(overview)
    if spec is None:
        raise Refusal(Status.NOT_FOUND, f"there is nothing to plot as {options.what} of {kernel}: {plot.missing}")
    kind = f", {words.kind(overview.main)}" if overview.main and options.what != "fidelity" else ""
    data = drawn(spec, title=f"{kernel}: {plot.title}{kind}", suffix=options.output.suffix)
    write(options.output, data, say=say)
    return Status.PASS.exit_code
