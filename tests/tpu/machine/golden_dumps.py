"""Unpacks golden dumps (written by ``make_golden.py``) and runs the machine on them."""

from __future__ import annotations

import functools
import re
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ratchet.tpu import latency
from ratchet.tpu.chips import V5E
from ratchet.tpu.dump.files import load_hlo
from ratchet.tpu.dump.listing import Listing, parse
from ratchet.tpu.dump.memory import parse_utilisation
from ratchet.values import Timeline

HERE = Path(__file__).parent
ARCHIVES = {
    (path.parent.name, path.name.removesuffix(".tar.xz")): path
    for golden in (HERE / "golden", HERE / "golden_slice", HERE / "golden_sparse", HERE.parent / "dump" / "golden")
    for path in sorted(golden.glob("*/*.tar.xz"))
}
"""By compiler and program. ``golden_slice`` are programs for four chips, ``golden_sparse`` for a tpu7x. Of the newest
compiler there are some: their start and end differ, as it sends commands to the host."""
COMPILERS = sorted(path.name for path in (HERE / "golden").iterdir())

SCALARS = np.array([2.5, 3.0, 0.25, 9.0, 1.0, 0.5, 0.0, 0.0], np.float32)  # 2.5 * 3 - 0.25: 7 times, and the branch
NUMBERS = np.array([1 << 29, 0, 0, 0, 0, 0, 0, 0], np.int32)  # with two leading zeros
INPUTS: dict[str, dict[int | str, np.ndarray]] = {
    "scalars": {0: SCALARS, 1: NUMBERS},
    "prefetch": {0: np.array([3, 0, 2, 1], np.int32)},
    "loop": {1: np.array(3, np.int32)},
}


def unpack(compiler: str, program: str, into: Path) -> Path:
    """The folder with the dumps of one program."""
    folder = into / compiler / program
    folder.mkdir(parents=True)
    with tarfile.open(ARCHIVES[compiler, program]) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # from Python 3.11.4 on
        archive.extractall(folder)
    return folder


def edit(folder: Path, old: str, new: str) -> None:
    """Replace a pattern in the listings; it has to be there."""
    edited = 0
    for path in folder.glob("*-packed-bundles-post-ra.txt"):
        text, count = re.subn(old, new, path.read_text())
        path.write_text(text)
        edited += count
    assert edited


def model(folder: Path, given: dict[int | str, np.ndarray] | None = None, /, **changes: object) -> Timeline:
    """The machine's timeline of an unpacked program."""
    hlo, constants = load_hlo(folder), folder / "constants.bin"
    arguments: dict[str, object] = {
        "hlo": hlo,
        "chip": V5E,
        "compiler": folder.parent.name,
        "scalar_inputs": [given or {}] * len(hlo.device_ids),
        "constants": constants.read_bytes() if constants.exists() else b"",
    }
    return latency.model(folder, **(arguments | changes))  # type: ignore[arg-type]


@functools.cache
def modelled(compiler: str, program: str) -> Timeline:
    """The same with the inputs that steer it. For tests with pinned constants only: one run serves them all."""
    with tempfile.TemporaryDirectory() as folder:
        return model(unpack(compiler, program, Path(folder)), INPUTS.get(program))


def counted(folder: Path) -> Iterator[tuple[Listing, dict[str, np.ndarray]]]:
    """The listings of a program, each with the compiler's own counts per bundle, empty ones left out."""
    for path in folder.glob("*-final_hlo-static-per-bundle-utilization.txt"):
        stem = path.name.rpartition("-final_hlo")[0].rpartition("-")[0]
        (listing,) = folder.glob(f"{stem}-*-packed-bundles-post-ra.txt")
        (outline,) = folder.glob(f"{stem}-*-post-bundle-packing-post-ra.txt")
        read = parse(listing.read_text(), outline.read_text(), file=listing.name, compiler=folder.parent.name)
        yield read, dict(parse_utilisation(path.read_text(), file=path.name))
