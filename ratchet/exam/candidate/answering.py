"""How a process that runs an author's code answers: with a record written last, or with why there is none.

Older versions of JAX than the judge's run this file, too.
"""

from __future__ import annotations

import contextlib
import json
import resource
import time
import traceback
from collections.abc import Callable, Container, Iterator, Mapping
from pathlib import Path
from typing import Any

from ratchet.exam.candidate.tree import Tree
from ratchet.tpu.exporting import in_one_line, status_of
from ratchet.values.status import Refusal, Status


@contextlib.contextmanager
def blame(status: Status, files: Container[str], doing: str) -> Iterator[None]:
    """Turn whatever the author's code raises, ``SystemExit`` included, into a refusal with file and line.

    ``files`` are the author's, by the names that tracebacks have.
    """
    try:
        yield
    except Refusal:
        raise
    except MemoryError as error:
        raise Refusal(Status.OUT_OF_MEMORY, f"{doing}: {str(error) or 'MemoryError'}") from None
    except BaseException as error:
        decided = status_of(error) if status is Status.LOWERING_FAILED else status
        own = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in files]
        where = f"{own[-1].filename}:{own[-1].lineno}: " if own else ""
        raise Refusal(decided, f"{where}{doing}: {_said(error, files)}") from None


def _said(error: BaseException, files: Container[str]) -> str:
    """The error in one line; of a file of the author's that is not here, what to do."""
    if isinstance(error, FileNotFoundError) and isinstance(files, Tree) and (path := files.relative(error.filename)):
        return f"there is no {path} here: name files that a module reads under `include` in [tool.ratchet]"
    return in_one_line(error)


def answer(request: Path, examine: Callable[[Mapping[str, Any], Path], dict[str, Any]]) -> str:
    """Answer one request, and return the name of the record: what ``examine`` found of it, or its refusal.

    ``request/request.json`` says what is asked, and ``memory_bytes``, which may be used from now on.
    """
    start = time.monotonic()
    asked = json.loads((request / "request.json").read_text())
    resource.setrlimit(resource.RLIMIT_DATA, (asked["memory_bytes"], asked["memory_bytes"]))
    try:
        record = examine(asked, request)
    except Refusal as refusal:
        record = {"status": refusal.status.name, "message": refusal.message}
    record |= {"seconds": time.monotonic() - start}
    (request / "record.json.new").write_text(json.dumps(record))
    (request / "record.json.new").rename(request / "record.json")
    return "record.json"
