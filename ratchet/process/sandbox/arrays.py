"""Arrays that a child left, as the judge reads them: of limited size, and none that Python code would be run for."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ratchet.process.sandbox.folder import read_file
from ratchet.values.status import Refusal, Status


class Arrays(dict[str, Any]):
    """Arrays by name. To look for one that is not there is refused."""

    def __missing__(self, key: str) -> Any:
        raise _refusal(f"there is no {key}")


def read_arrays(path: Path, limit: int) -> Mapping[str, Any]:
    """The arrays of a ``.npz`` file in a folder that a child can write, ``limit`` bytes of them at most.

    Raises:
        Refusal: ``CANNOT_VERIFY`` where it is not there, or no such file.
    """
    import numpy as np

    try:
        data = read_file(path, limit)
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            size = sum(member.file_size for member in archive.infolist())
        if size > limit:
            raise ValueError(f"it unpacks to {size} bytes")
        with np.load(io.BytesIO(data), allow_pickle=False) as stored:
            return Arrays({name: stored[name] for name in stored.files})
    except Exception as error:  # archives and headers that are damaged raise nearly anything
        raise _refusal(f"{type(error).__name__}: {error}") from None


def _refusal(what: str) -> Refusal:
    return Refusal(Status.CANNOT_VERIFY, f"the process that executes for values left no usable arrays: {what:.200}")
