"""The compiler's dump files: which flags make it write them, and which file belongs to which HLO instruction."""

from __future__ import annotations

import functools
import re
from pathlib import Path, PurePath
from typing import NamedTuple

from ratchet.tpu.dump import tiles
from ratchet.tpu.dump.hlo import HloModule, read_hlo
from ratchet.tpu.dump.listing import Listing, parse
from ratchet.tpu.dump.tiles import Section
from ratchet.values.status import Refusal, Status
from ratchet.values.tokens import NO_TOKENS, TOKENS_FILE, TokenTable, decode

LISTING_PASS, OUTLINE_PASS = "packed-bundles-post-ra", "post-bundle-packing-post-ra"
UTILISATION_PASS = "final_hlo-static-per-bundle-utilization"
"""The passes whose dumps are read of every unit; the last says how many slots of each bundle are in use."""
LAST_PASS = "post-delay-converter"
"""The pass after which a unit's text has every instruction of its listing, in order, without bundles."""
ALLOCATIONS_PASS = "pre-finalize-registers-and-allocations"
"""The pass whose dump lists the buffers of a kernel that does not fit."""
TOP = "TLP"
"""Name under which the compiler dumps the top-level program."""
OPTIMIZED, LOWERED = "optimized.hlo.pb", "lowered.hlo.pb"
"""Serialised HLO modules beside the dumps: after the compiler's passes, and before them."""
MOST_BYTES = 1 << 30

_DUMP = re.compile(r"(?P<unit>\d+-(?P<name>.+))-\d+-(?P<label>.+)\.txt", re.DOTALL)
_STAMPS = re.compile(r"\A\d+(?=-)"), re.compile(r"(?<=_)\d+(?=_bundles\.txt\Z)")
"""Numbers in the names of dumps that differ from one compile to the next: of units, and of SparseCores' programs."""
_SPARSE = re.compile(r"(?P<name>.+)_\d+_bundles\.txt", re.DOTALL)
_ANALYSIS = "-schedule-analysis_"
"""In the name of what the compiler says of a pass, beside what the pass made."""


def dump_flags(directory: Path | str, *, extra_passes: tuple[str, ...] = (), profiles: bool = False) -> list[str]:
    """Flags for ``LIBTPU_INIT_ARGS`` that make the compiler write what :func:`ratchet.tpu.machine.run` reads.

    Only the passes that are read are asked for (about 1 % of a full dump), with source locations, which leave the
    schedule as it is. One directory holds the dumps of one program. ``extra_passes`` are asked for besides. A compiler
    that ``profiles`` writes less, and hands the bundles of kernels to a profiler: see ``compiler/fast``.
    """
    passes = (LAST_PASS,) if profiles else (LISTING_PASS, OUTLINE_PASS, UTILISATION_PASS, *extra_passes)
    flags = [
        f"--xla_jf_dump_to={directory}",
        "--xla_jf_dump_llo_text=true",
        f"--xla_jf_dump_llo_pass_label_regex=({'|'.join(passes)})",
        "--xla_mosaic_enable_llo_source_annotations=true",
        f"--xla_sc_dump_bundles_to={directory}",
    ]
    if profiles:
        flags += ["--xla_jf_dump_category_filter=basic,memory-report", "--xla_xprof_register_llo_debug_info=true"]
    return flags


class Dump(NamedTuple):
    """What a name says: ``17-TLP-03-post-ra.txt``."""

    unit: str
    """Number and name of the unit, by which its dumps belong together: ``17-TLP``."""
    name: str
    label: str
    """Of the pass."""


def named(dump: PurePath) -> Dump | None:
    """Of which unit a dump is and after which pass, by its file's name; None where it is that of no dump of a pass."""
    match = _DUMP.fullmatch(dump.name)
    return Dump(**match.groupdict()) if match and _ANALYSIS not in dump.name else None


def without_stamps(folder: Path) -> None:
    """Give the dumps of a program names that are the same whenever it is compiled.

    The compiler numbers units by the time at which it dumped them, ``1795893642010584221-TLP-02-post-ra.txt``; they are
    ``1-TLP-02-post-ra.txt`` then. Of two dumps with the same name, which no program has, the second keeps its own.
    """
    for path in sorted(folder.iterdir()):
        for stamp in _STAMPS:
            short = folder / stamp.sub("1", path.name, count=1)
            if stamp.search(path.name) and not short.exists():
                path.rename(short)
                break


def text_of(path: Path, status: Status = Status.SCHEDULE_UNKNOWN) -> str:
    """The text of a dump.

    Raises:
        Refusal: ``status`` for a file that is no UTF-8, or larger than any dump.
    """
    if path.stat().st_size > MOST_BYTES:
        raise Refusal(status, f"{path.name} is larger than {MOST_BYTES >> 20} MiB, wanted a dump of the compiler's")
    try:
        return path.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise Refusal(status, f"{path.name} is not UTF-8 at byte {error.start}: compile again") from None


def load_hlo(folder: Path, name: str = OPTIMIZED) -> HloModule:
    """The HLO of a compiled program. Raises Refusal SCHEDULE_UNKNOWN if it cannot be read."""
    path = folder / name
    if not path.is_file():
        raise Refusal(Status.SCHEDULE_UNKNOWN, f"there is no {name} in {folder.name}. Compile again.")
    return read_hlo(path.read_bytes(), file=name)


def tokens_in(folder: Path) -> TokenTable:
    """What the tokens in the dumps of a program stand for; no tokens where it was compiled as its author wrote it.

    Raises Refusal SCHEDULE_UNKNOWN for a table that cannot be.
    """
    table = folder / TOKENS_FILE
    if not table.is_file():
        return NO_TOKENS
    try:
        return decode(text_of(table))
    except ValueError as error:
        raise Refusal(
            Status.SCHEDULE_UNKNOWN, f"{table.name} is no table of tokens ({error}). Compile again."
        ) from None


class Dumps:
    """Finds and reads the listings of one program."""

    def __init__(self, directory: Path, hlo: HloModule, compiler: str) -> None:
        self._compiler = compiler
        self._hlo = hlo
        self._directory = directory
        self._files: dict[str, tuple[Path, Path]] = {}
        """Listing and outline of each."""
        self._listings: dict[str, Listing] = {}
        self.tokens = tokens_in(directory)
        """What the source places and names in them stand for."""
        every = sorted(directory.iterdir()) if directory.is_dir() else []
        dumps = [(dump, path) for path in every if (dump := named(path))]
        outlines = {dump.unit: path for dump, path in dumps if dump.label == OUTLINE_PASS}
        for dump, path in dumps:
            if dump.label != LISTING_PASS:
                continue
            if dump.name in self._files:
                raise self._refuse(f"two dumps of {dump.name!r}: give every program a dump directory of its own")
            if dump.unit not in outlines:
                raise self._refuse(f"{path.name} lacks its *-{OUTLINE_PASS}.txt: dump that pass too")
            self._files[dump.name] = path, outlines[dump.unit]
        if TOP not in self._files:
            raise self._refuse(
                f"no *-{TOP}-*-{LISTING_PASS}.txt. Compile with the flags of ratchet.tpu.dump.files.dump_flags"
            )
        self._by_fingerprint: dict[str, str] | None = None

    @property
    def names(self) -> list[str]:
        return list(self._files)

    def has_code(self, name: str) -> bool:
        """Whether there is a dump of an instruction, or of an identical one."""
        return self._dumped(name) is not None

    def resolve(self, name: str) -> str:
        """The dump that holds ``name``: its own, or that of an identical instruction."""
        unit = self._dumped(name)
        if unit is None:
            raise self._refuse(f"the program calls {name!r}, but neither it nor an identical instruction was dumped")
        return unit

    def _dumped(self, name: str) -> str | None:
        if name in self._files:
            return name
        if name not in self._hlo.ops:
            return None
        if self._by_fingerprint is None:
            known = [n for n in self._files if n in self._hlo.ops]
            self._by_fingerprint = {self._hlo.fingerprint(n): n for n in reversed(known)}
        return self._by_fingerprint.get(self._hlo.fingerprint(name))

    @functools.cached_property
    def _of_sparse_cores(self) -> dict[str, list[Path]]:
        """Programs of the SparseCores by the operation that they are of."""
        found: dict[str, list[Path]] = {}
        for path in sorted(self._directory.glob("*_bundles.txt")):
            if match := _SPARSE.fullmatch(path.name):
                found.setdefault(match["name"], []).append(path)
        return found

    def has_tiles(self, name: str) -> bool:
        """Whether there is one program of the SparseCores, and no other, for an operation that is handed to them."""
        return len(self._of_sparse_cores.get(name, ())) == 1

    def tiles(self, name: str) -> dict[str, Section] | None:
        """The program that it has; None where it has not one alone."""
        if not self.has_tiles(name):
            return None
        (path,) = self._of_sparse_cores[name]
        return tiles.parse(text_of(path), file=path.name, compiler=self._compiler)

    def load(self, name: str) -> Listing:
        """The parsed listing of a dump; kept, because a program may have to be run more than once."""
        if name not in self._listings:
            listing, outline = self._files[name]
            self._listings[name] = parse(
                text_of(listing), text_of(outline), file=listing.name, compiler=self._compiler, tokens=self.tokens
            )
        return self._listings[name]

    def _refuse(self, what: str) -> Refusal:
        return Refusal(Status.SCHEDULE_UNKNOWN, f"schedule dumps in {self._directory.name} ({self._compiler}): {what}.")
