"""Unpacks golden dumps (written by ``make_golden.py``) and runs the machine on them."""

from __future__ import annotations

import tarfile
from pathlib import Path

import numpy as np

from ratchet.tpu.account.model import Reading
from ratchet.tpu.account.model import model as model_program
from ratchet.tpu.chips import V5E
from ratchet.tpu.dump.files import load_hlo
from ratchet.values import Timeline

GOLDEN = Path(__file__).parent / "golden"
COMPILERS = sorted(path.name for path in GOLDEN.iterdir() if path.is_dir())
PROGRAMS = sorted(path.name.removesuffix(".tar.xz") for path in (GOLDEN / COMPILERS[0]).iterdir())

NEWEST_GOLDEN = Path(__file__).parents[1] / "dump" / "golden"
"""Some of the programs under the newest compiler, whose start and end differ: it sends commands to the host."""
(NEWEST,) = (path.name for path in NEWEST_GOLDEN.iterdir())
NEWEST_PROGRAMS = sorted(path.name.removesuffix(".tar.xz") for path in (NEWEST_GOLDEN / NEWEST).iterdir())


def unpack(compiler: str, program: str, into: Path, *, golden: Path = GOLDEN) -> Path:
    """The folder with the dumps of one program."""
    folder = into / compiler / program
    folder.mkdir(parents=True)
    with tarfile.open(golden / compiler / f"{program}.tar.xz") as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # from Python 3.11.4 on
        archive.extractall(folder)
    return folder


def model(
    folder: Path,
    scalar_inputs: dict[int | str, np.ndarray] | None = None,
    *,
    detail: bool = False,
    reading: Reading | None = None,
) -> Timeline:
    """The machine's timeline of an unpacked program."""
    return model_program(
        folder,
        hlo=load_hlo(folder),
        chip=V5E,
        compiler=folder.parent.name,
        scalar_inputs=[scalar_inputs or {}],
        detail=detail,
        reading=reading,
    )
