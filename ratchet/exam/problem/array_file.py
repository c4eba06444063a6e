"""Files of several arrays, which are read where they are used: what is known of a problem is gigabytes.

As ``numpy.save`` writes arrays, one after another, with no sum of their bytes: whoever lends a file knows its MAC.
"""

from __future__ import annotations

import hashlib
import math
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

if TYPE_CHECKING:
    import numpy as np

SUFFIX = ".npy"


def path_of(folder: Path, name: str) -> Path:
    """The file of that name in a folder: an instance's references go by its kind."""
    return folder / f"{name}{SUFFIX}"


def more_path(folder: Path, kind: str, what: bytes) -> Path:
    """The file of ``what`` else is known of an instance: rows of its reference."""
    return path_of(folder, f"{kind}.more-{hashlib.sha256(what).hexdigest()[:16]}")


def more_of(folder: Path, kind: str) -> list[Path]:
    """All such files of an instance, in the order of their names."""
    return sorted(folder.glob(f"{kind}.more-*{SUFFIX}"))


def read(path: Path, *, to_change: bool = False) -> list[np.ndarray[Any, Any]]:
    """The arrays of a file; none if it is not there, or was cut off or damaged.

    They cannot be written to, or, ``to_change``, take memory of their own for the pages that are written.
    """
    try:
        with path.open("rb") as file:
            end, arrays = os.fstat(file.fileno()).st_size, []
            while file.tell() < end:
                arrays.append(_mapped(file, "c" if to_change else "r"))
            return arrays
    except (OSError, ValueError, EOFError):
        return []


def _mapped(file: BinaryIO, mode: Literal["c", "r"]) -> np.ndarray[Any, Any]:
    """The next array of a file."""
    import numpy as np

    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError(f"{file.name} holds no arrays of this format")
    shape, by_columns, dtype = np.lib.format.read_array_header_1_0(file)
    start, size = file.tell(), math.prod(shape)
    array = np.memmap(file, dtype, mode, offset=start, shape=(size,)) if size else np.empty(0, dtype)
    file.seek(start + size * dtype.itemsize)
    return np.asarray(array).reshape(shape, order="F" if by_columns else "C")


def write(path: Path, arrays: Sequence[np.ndarray[Any, Any]]) -> None:
    """Written to a temporary file and renamed: a process that is killed, or a full disk, leaves no half of a file."""
    import numpy as np

    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.stem}.{os.getpid()}-{threading.get_ident()}{SUFFIX}")
    try:
        with temporary.open("wb") as file:
            for array in arrays:
                np.save(file, array, allow_pickle=False)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
