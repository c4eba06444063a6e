"""The frozen problems of a project in one lock file, beside the file that may be edited."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from ratchet.exam.problem.problem import MAX_LOCK_BYTES, decode, lock_path
from ratchet.process.sandbox.folder import read_file
from ratchet.values.status import Refusal, Status


def read(lock: Path) -> dict[str, bytes]:
    """Each problem's own lock by its name; none where there is no file.

    Raises:
      Refusal: ``PROBLEM_CHANGED`` if it is not what ``write`` writes.
    """
    if not lock.exists():
        return {}
    try:
        data = read_file(lock, MAX_LOCK_BYTES)
        locks = {name: _encoded(document) for name, document in json.loads(data)["problems"].items()}
        for name, one in locks.items():
            decode(one, f"{lock.name}: {name}")
        if _document(locks) != data:
            raise ValueError("it was edited or reformatted")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Refusal(Status.PROBLEM_CHANGED, f"{lock.name} cannot be read ({error}); restore it with git") from None
    return locks


def spread(locks: Mapping[str, bytes], folder: Path) -> dict[str, Path]:
    """Each problem's lock as a file below ``folder``, where there is one; the paths of all names asked for."""
    for name, data in locks.items():
        path_of(folder, name).write_bytes(data)
    return {name: path_of(folder, name) for name in locks}


def path_of(folder: Path, name: str) -> Path:
    """Where one problem's lock is while it is judged."""
    return lock_path(folder / name.replace("/", "_"))


def write(lock: Path, locks: Mapping[str, bytes]) -> None:
    """Write all of them to one file."""
    lock.write_bytes(_document(locks))


def _document(locks: Mapping[str, bytes]) -> bytes:
    problems = {name: json.loads(data) for name, data in sorted(locks.items())}
    return (json.dumps({"problems": problems}, indent=1, ensure_ascii=True) + "\n").encode()


def _encoded(document: object) -> bytes:
    """As ``ratchet.exam.problem.problem.encode`` writes it."""
    return (json.dumps(document, indent=1, ensure_ascii=True) + "\n").encode()
