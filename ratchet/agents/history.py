"""What an agent reads of earlier experiments, as plain JSON values: rows, evidence, sources."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ratchet.exam.judge.evidence import FOLDERS
from ratchet.loop import log, recorded
from ratchet.process.sandbox.folder import read_file
from ratchet.values import Row
from ratchet.values.status import Refusal, Status
from ratchet.view.text import kind_of, number

PAGE = 16_000
"""Characters of a file that come at once."""
_FILE_BYTES = 64 << 20
_MOST_ROWS = 200
_MOST_FILES = 500


def history(root: Path, *, kernel: str, newest: int) -> dict[str, Any]:
    """The newest rows of the ledger, oldest of them first; ``kernel`` leaves out those of other files.

    Raises:
        Refusal: LEDGER_BROKEN.
    """
    rows = [row for row in log.rows(root) if kernel in ("", row.kernel)]
    shown = rows[-max(1, min(newest, _MOST_ROWS)) :]
    return {"rows": len(rows), "newest": [short(row) for row in shown]}


def short(row: Row) -> dict[str, Any]:
    """What one row says of an experiment."""
    texts = ("id", "time", "commit", "kernel", "note", "status", "decision", "reason")
    numbers = {"latency_ms": row.median_ms, "score": row.score, "vmem_bytes": row.vmem_bytes, "spills": row.spills}
    return {
        **{name: getattr(row, name) for name in texts},
        "kind": kind_of(row.evaluator) if row.evaluator else "",
        **{name: number(text) for name, text in numbers.items()},
    }


def source(root: Path, name: str) -> dict[str, Any]:
    """The kernel file of an experiment.

    Raises:
        Refusal: NOT_FOUND.
    """
    row = log.find(root, name)
    text = recorded.source(root, row)
    if text is None:
        raise Refusal(Status.NOT_FOUND, f"the kernel of {row.id} is not in this clone: fetch refs/ratchet/*")
    return {"id": row.id, "kernel": row.kernel, "text": text}


def evidence(root: Path, name: str, file: str, offset: int) -> dict[str, Any]:
    """The files that the judge left of an experiment, or a page of one of them.

    Raises:
        Refusal: NOT_FOUND, USAGE.
    """
    row = log.find(root, name)
    files = dict(_files(root, row.id))
    if not file:
        shown = sorted(files)[:_MOST_FILES]
        return {"id": row.id, "row": short(row), "files": {path: files[path] for path in shown}, "of": len(files)}
    if file not in files:
        raise Refusal(Status.NOT_FOUND, f"{row.id} has no evidence {file!r:.100}: without a file name they are listed")
    try:
        text = read_file(root / file, _FILE_BYTES).decode()
    except UnicodeDecodeError:
        raise Refusal(Status.USAGE, f"{file} is no text: {files[file]} bytes") from None
    except (OSError, ValueError) as error:
        raise Refusal(Status.NOT_FOUND, f"{file} cannot be read: {error}") from None
    offset = max(0, min(offset, len(text)))
    end = offset + PAGE
    return {
        "id": row.id,
        "file": file,
        "characters": len(text),
        "text": text[offset:end],
        "next_offset": end if end < len(text) else None,
    }


def _files(root: Path, name: str) -> Iterator[tuple[str, int]]:
    """Paths relative to the root and sizes of an experiment's files; links lead nowhere."""
    if Path(name).name != name or name in ("", ".", ".."):  # a ledger is text that anyone can edit
        return
    for folder in FOLDERS:
        top = root / folder / name
        if (root / folder).is_symlink() or top.is_symlink():
            continue
        for parent, _, names in os.walk(top, followlinks=False):
            for one in names:
                path = Path(parent, one)
                if path.is_file() and not path.is_symlink():
                    yield path.relative_to(root).as_posix(), path.stat().st_size
