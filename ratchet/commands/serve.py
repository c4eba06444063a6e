"""``ratchet serve``"""

from __future__ import annotations

import argparse
import errno
import hashlib
from collections.abc import Callable
from pathlib import Path

from ratchet.commands.report import which
from ratchet.loop.history import History
from ratchet.loop.ledger import NAME
from ratchet.loop.workspace import under_way
from ratchet.report.gather import material
from ratchet.report.live import LOOPBACK, LiveServer
from ratchet.report.material import Material
from ratchet.report.page import page
from ratchet.report.story import story
from ratchet.values.status import Refusal, Status
from ratchet.wiring import DUMPS


def command(options: argparse.Namespace, *, root: Path, say: Callable[[str], None]) -> int:
    """Serve the report of one kernel file, as it is now, until it is interrupted."""
    kernel = which(root, options.file)
    history = History(root)
    try:
        server = LiveServer(options.port, page=lambda: _page(root, kernel), version=lambda: _version(history, root))
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


def _page(root: Path, kernel: str) -> str:
    try:
        known = material(root, kernel)
    except Refusal as refusal:  # a ledger that somebody edits while it is shown
        known = Material(repository=root.name, kernel=kernel, rows=(), broken=(refusal.status, refusal.message))
    return page(story(known), live=True)


def _version(history: History, root: Path) -> str:
    """Changes with the ledger, with HEAD, with what is under way, and when evidence comes or goes."""
    parts = [under_way(history), history.refs.resolve("HEAD") or ""]
    for path in (root / NAME, root / DUMPS):
        try:
            state = path.stat()
            parts.append(f"{state.st_mtime_ns} {state.st_size}")
        except OSError:
            parts.append("")
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
