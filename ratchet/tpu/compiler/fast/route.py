"""Two compilers for one large program: which programs they are for, and whether what they give fits together.

To dump bundles libtpu packs a unit twice more, for texts that nobody here asks for: of a large kernel ten seconds. So
one process compiles the program with bundles from a profile, which it gives of kernels and fusions alone. Meanwhile
another compiles it, with kernels that do nothing, for the bundles of all that is around them: these follow from a
unit's instructions, and count where every such unit has the same text after the last pass in both.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

from ratchet.process import fast
from ratchet.process.sandbox.child import Child, Ending
from ratchet.process.sandbox.folder import remove
from ratchet.tpu.dump.files import LAST_PASS, LISTING_PASS, OUTLINE_PASS, UTILISATION_PASS, named
from ratchet.values import Artefact, Program
from ratchet.values.status import Refusal, Status

LARGE_BYTES = 64 << 10
"""Of a program whose dumps of bundles take the compiler longer than it takes to start another, by far: ``kernel.py``
has 89 KB. ``python -m benchmarks.compiled OUT kernel.py`` prints seconds of both ways."""

_LABELS = (LAST_PASS, LISTING_PASS, OUTLINE_PASS, UTILISATION_PASS)


class Plain(Protocol):
    """What the plain route does with one process."""

    def ask(self, folder: Path, child: Child, *, stubbed: bool = False) -> Ending:
        """Have ``child`` compile the program, ``stubbed`` with kernels that do nothing, into ``folder``."""

    def read(self, folder: Path, ending: Ending) -> Program:
        """The program that is in ``folder``. Raises Refusal where there is none."""


def takes(artefact: Artefact) -> bool:
    """Whether a program goes this way. None for several chips does, which needs other dumps, too."""
    return fast.ON.profiles and len(artefact.program) >= LARGE_BYTES and artefact.mesh.chips == 1


def compiled_apart(plain: Plain, folder: Path, profiler: Child, child: Child) -> Program | None:
    """The program as ``profiler`` makes it, with what ``child`` makes around stubbed kernels.

    None where the plain route has to say what there is: where the two do not fit together, where ``profiler`` dies,
    and of a kernel that does not fit in VMEM, whose buffers it does not list.

    Raises:
      Refusal: what else the compiler refuses, and what ``child`` dies of.
    """
    stubs = folder.with_name(f"{folder.name}-stubbed")
    try:
        with ThreadPoolExecutor(1) as other:
            around = other.submit(plain.ask, stubs, child, stubbed=True)
            ending = plain.ask(folder, profiler)
        if around.result().how != "answered":  # what dies of stubs dies of the kernels, too
            plain.read(stubs, around.result())
        fits = add_around(folder / "schedule", stubs / "schedule")
        program = plain.read(folder, ending)
        return program if fits else None
    except Refusal as refusal:
        if refusal.status in (Status.VMEM_OVERFLOW, Status.COMPILER_CRASHED) and child.alive:
            return None
        raise
    finally:
        remove(stubs)


def add_around(schedule: Path, stubs: Path) -> bool:
    """Move the dumps of what is around the kernels from ``stubs`` to ``schedule``; whether it is the same in both.

    ``schedule`` has the texts of the kernels, and those of the last pass for all else. Nothing is moved if they differ.
    """
    ours, theirs = _dumps(schedule), _dumps(stubs)
    around = {name for name, labels in ours.items() if LAST_PASS in labels}
    kernels = ours.keys() - around
    if theirs.keys() - kernels != around or not around:
        return False
    if any(LISTING_PASS not in ours[name] for name in kernels):
        return False
    for name in around:
        if not {LAST_PASS, LISTING_PASS, OUTLINE_PASS} <= theirs[name].keys():
            return False
        if theirs[name][LAST_PASS].read_bytes() != ours[name][LAST_PASS].read_bytes():
            return False
    for name in around:
        ours[name][LAST_PASS].unlink()
        for label, dump in theirs[name].items():
            if label != LAST_PASS:
                dump.rename(schedule / dump.name)
    return True


def _dumps(folder: Path) -> dict[str, dict[str, Path]]:
    """Dumps by the name of their unit, then by their pass."""
    found: dict[str, dict[str, Path]] = {}
    for path in folder.iterdir() if folder.is_dir() else ():
        dump = named(path)
        if dump and dump.label in _LABELS:
            found.setdefault(dump.name, {})[dump.label] = path
    return found
