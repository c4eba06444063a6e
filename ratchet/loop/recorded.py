"""What the evidence of an experiment keeps of its modelled run, and which experiment somebody means."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from ratchet.loop import log
from ratchet.loop.history import History
from ratchet.process import paths
from ratchet.process.boot import home
from ratchet.values import Row, Timeline
from ratchet.values.encoding import decode, encode
from ratchet.values.status import Refusal, Status

T = TypeVar("T")

HEAD = "HEAD"
_MOST_BYTES = 64 << 20
_KERNEL_BYTES = 1 << 30


def to_bytes(value: object) -> bytes:
    """A frozen value as evidence keeps it."""
    return json.dumps(encode(value)).encode() + b"\n"


def without_spans(timeline: Timeline) -> Timeline:
    """A modelled run without its spans, which are in the trace, and without single chips."""
    return replace(timeline, spans=(), ops=(), chips=(), links=(), control=None)


def from_file(kind: type[T], path: Path) -> T | None:
    """What :func:`to_bytes` made of a value of type ``kind``; None where there is no such file, or it holds another."""
    try:
        return decode(kind, json.loads(paths.read(path, _MOST_BYTES)))
    except (OSError, ValueError, RecursionError):
        return None


def experiment(root: Path, name: str, *, kernel: Path) -> Row:
    """The experiment that ``name`` means.

    Args:
        name: an id or commit or the beginning of it, ``HEAD`` for what the branch has of ``kernel``, or a file: then
            the newest experiment with these very bytes, whatever its kernel file was called.
        kernel: the kernel file, absolute.

    Raises:
        Refusal: NOT_FOUND, also where a file was not judged as it is; LEDGER_BROKEN.
    """
    history = History(root)
    if name == HEAD:
        path = kernel.relative_to(history.root).as_posix()
        entry = history.objects.entry(history.checks.head().commit, path)
        if entry is None:
            raise Refusal(Status.NOT_FOUND, f"HEAD has no {path}: name an experiment, `{home.PROGRAM} log` lists them")
        return _judged(root, entry.blob, f"{path} of HEAD")
    file = Path(name) if paths.is_file(Path(name)) else history.root / name
    if not paths.is_file(file):
        return log.find(root, name)
    inside = file.resolve().is_relative_to(history.root)
    path = file.resolve().relative_to(history.root).as_posix() if inside else file.name
    return _judged(root, history.objects.name(paths.read(file.resolve(), _KERNEL_BYTES), path), name)


def _judged(root: Path, blob: str, what: str) -> Row:
    rows = [row for row in log.rows(root) if row.kernel_blob == blob]
    if not rows:
        todo = f"`{home.PROGRAM} judge {what}`" if " " not in what else f'`{home.PROGRAM} "baseline"`'
        raise Refusal(Status.NOT_FOUND, f"{what} was not judged as it is: {todo} first")
    scored = [row for row in rows if row.median_ms]
    return (scored or rows)[-1]


def source(root: Path, row: Row) -> str | None:
    """The kernel file of an experiment; None where git does not have it here."""
    history = History(root)
    if history.objects.unresolved([row.kernel_blob]):
        return None
    return history.objects.blob(row.kernel_blob).decode(errors="replace")
