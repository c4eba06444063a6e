"""Verdicts on programs that were judged before: nothing is judged twice under the same conditions.

A program is known by a digest without its author's names and places, together with everything else that a verdict
follows from: what the kernel file declares, the frozen problem, chip, evaluator, compiler, the judge's seal, and the
clone's secret. What is remembered is a verdict that judging again would repeat: one that passed every check, one whose
latency alone was asked for or was too long, and refusals that follow from the program. Never a crash, a time limit,
trouble of the machine, or anything measured.

Each is a file in ``.ratchet/verdicts`` with a MAC of this machine's key, as references are: what was edited or comes
from elsewhere is no verdict. The oldest go when all of them take more than ``MAX_BYTES``.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from ratchet.process import key, paths
from ratchet.values import SCORED, Artefact, Earlier, Timeline, Verdict
from ratchet.values.encoding import decode, encode
from ratchet.values.place import SourceLine
from ratchet.values.status import Status
from ratchet.values.tokens import TokenTable
from ratchet.values.tokens import decode as decode_table
from ratchet.values.tokens import encode as encode_table

CACHEABLE = frozenset({
    *SCORED,
    Status.UNALIGNED_BLOCK, Status.UNSUPPORTED_PRIMITIVE, Status.VMEM_OVERFLOW, Status.HBM_OVERFLOW,
    Status.SMEM_OVERFLOW,
    Status.NOT_A_KERNEL, Status.HOST_CALLBACK,
    Status.WRONG_VALUES, Status.NOT_FINITE, Status.NON_DETERMINISTIC, Status.INPUTS_CHANGED, Status.OUT_OF_BOUNDS,
    Status.INSENSITIVE, Status.MEMORY_HAZARD,
    Status.DEADLOCK, Status.CONTROL_FLOW_DIFFERS, Status.COPIES_DIFFER, Status.INVALID,
})  # fmt: skip
"""The same program has these again. Others may be the machine's doing, or a limit's."""
MAX_BYTES = 256 << 20
_SUFFIX = ".verdict"
_NAME = re.compile(rf"[0-9a-f]{{64}}{re.escape(_SUFFIX)}")
_LEFT_OVER_S = 86400.0
"""Age from which a file that was not renamed is that of a process that was killed."""
_MOST = 1 << 28
"""Bytes of one file, the most that is read."""
_PURPOSE = "verdict"
_NOT_OF_THE_PROGRAM = ("program", "seconds")
"""Fields of an artefact that say nothing of what is judged beside its digest."""


@dataclass(frozen=True, kw_only=True)
class Identity:
    """One program under the conditions that it is judged under."""

    digest: str
    tokens: TokenTable
    """What its author calls things, and where they are: no part of the digest."""


def identity(code_sha256: str, tokens: TokenTable, artefact: Artefact, conditions: Mapping[str, object]) -> Identity:
    """``conditions`` is everything else that a verdict follows from, as JSON values."""
    declared = {
        field.name: encode(getattr(artefact, field.name))
        for field in fields(artefact)
        if field.name not in _NOT_OF_THE_PROGRAM
    }
    text = json.dumps([code_sha256, declared, conditions], sort_keys=True)
    return Identity(digest=hashlib.sha256(text.encode()).hexdigest(), tokens=tokens)


def keep(folder: Path, known: Identity, verdict: Verdict, experiment: str) -> None:
    """Remember a verdict, if it is one that judging again would repeat. What cannot be written is not remembered."""
    own = key.known()
    if own is None or verdict.status not in CACHEABLE or verdict.remembered or verdict.samples:
        return
    made = Earlier(time=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), experiment=experiment)
    record = {"verdict": encode(verdict), "tokens": encode_table(known.tokens), "earlier": encode(made)}
    data = zlib.compress(json.dumps(record).encode(), 1)
    mac = own.mac(_PURPOSE, known.digest.encode(), data)
    with contextlib.suppress(OSError):
        paths.make_folder(folder)
        paths.write(folder / f"{known.digest}{_SUFFIX}", mac.encode() + b"\n" + data)
        _prune(folder)


def recall(folder: Path, known: Identity) -> Verdict | None:
    """The verdict that this program has, with today's places in its source; None where none is remembered.

    Of a program whose author's names or places changed, a verdict is remembered only if each line became one line, and
    no text in it names a place.
    """
    own = key.known()
    try:
        mac, _, data = paths.read(folder / f"{known.digest}{_SUFFIX}", _MOST).partition(b"\n")
    except (OSError, ValueError):
        return None
    if own is None or not own.made(mac.decode(errors="replace"), _PURPOSE, known.digest.encode(), data):
        return None
    try:
        record = json.loads(zlib.decompress(data))
        verdict, tokens = decode(Verdict, record["verdict"]), decode_table(record["tokens"])
        verdict = replace(verdict, remembered=decode(Earlier, record["earlier"]))
    except (ValueError, KeyError, TypeError, zlib.error):  # of another version of these values
        return None
    return verdict if tokens == known.tokens else _moved(verdict, tokens, known.tokens)


def _moved(verdict: Verdict, before: TokenTable, now: TokenTable) -> Verdict | None:
    """The same verdict where only lines of the source moved; None where that cannot be said of it."""
    if verdict.status not in SCORED or verdict.copies or before.names != now.names or verdict.timeline is None:
        return None
    lines: dict[tuple[str, int], set[tuple[str, int]]] = {}
    for old, new in zip(before.sources, now.sources, strict=False):
        if (old is None) != (new is None):
            return None
        if old is not None and new is not None:
            lines.setdefault(_line(old), set()).add(_line(new))
    if len(before.sources) != len(now.sources) or any(len(to) > 1 for to in lines.values()):
        return None
    try:
        timeline = _relined(encode(verdict.timeline), {old: one for old, (one,) in lines.items()})
    except KeyError:
        return None
    return replace(verdict, timeline=decode(Timeline, timeline))


def _line(source: tuple[str, int, int]) -> tuple[str, int]:
    return source[0].replace("\\", "/").rpartition("/")[2], source[1]


def _relined(data: Any, lines: Mapping[tuple[str, int], tuple[str, int]]) -> Any:
    """An encoded value with every source line replaced.

    Raises:
      KeyError: for a line that is none of ``lines``.
    """
    if isinstance(data, dict):
        return {name: _relined(one, lines) for name, one in data.items()}
    if not isinstance(data, list):
        return data
    if data[:1] == [SourceLine.__name__]:
        return [data[0], *lines[data[1], data[2]]]
    return [_relined(one, lines) for one in data]


def _prune(folder: Path) -> None:
    """Remove the oldest until ``MAX_BYTES`` are enough for all."""
    root, below = paths.of(folder)
    root.sweep(below, older_s=_LEFT_OVER_S)
    states = [
        (state.st_mtime, state.st_size, f"{below}/{name}")
        for name in root.names(below)
        if _NAME.fullmatch(name) and (state := root.state(f"{below}/{name}"))
    ]
    total = sum(size for _, size, _ in states)
    for _, size, name in sorted(states)[:-1]:
        if total <= MAX_BYTES:
            return
        total -= size
        root.unlink(name)
