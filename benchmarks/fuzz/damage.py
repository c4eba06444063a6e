"""Damage to a file: bits and bytes, lines, numbers, and the structure of JSON. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import numpy as np

Generator = np.random.Generator

_NUMBER = re.compile(rb"(?<![\w.])-?\d+(?:\.\d+)?")
NUMBERS = (
    b"0", b"-1", b"1", b"4294967296", b"-2147483649", b"9" * 19, b"9" * 400, b"9" * 5000, b"1e400", b"-0", b"0x",
    b"NaN", b"Infinity", b"1.2.3",
)  # fmt: skip
TEXTS = (
    b"*/", b"/*", b" ;;  ", b'"', b"\\", b"\0", b"\xff\xfe", b"\xed\xa0\x80", b"\n", b"\r\n", b"\t", b"%s9_s9 = ",
    b"target bundleno = 99999 (0x1869f)", b"#allocation99", b"{" * 2000, b"[" * 100000, b"(" * 500, b"a" * 100000,
    b"../../etc/passwd", b"$(reboot)", "\u2028".encode(), b"\x80" * 2000, b"PK\x05\x06", b'{"a": 1, "a": 2}',
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1 << 31, 1 << 64, -(1 << 64), 10**400, 1.5, float("nan"), float("inf"), -0.0, "", "x",
    "\0", "\ud800", "x" * 10000, [], {}, [[]], {"": None}, [1, 2, 3], "PASS", ["PASS", "x"], ["NO_SUCH", "x"],
)  # fmt: skip


def damaged(data: bytes, generator: Generator) -> bytes:
    """``data`` with one to three kinds of damage."""
    for _ in range(int(generator.integers(1, 4))):
        data = _KINDS[int(generator.integers(len(_KINDS)))](data, generator)
    return data


def _at(data: bytes, generator: Generator) -> int:
    return int(generator.integers(0, len(data) + 1))


def _slice(data: bytes, generator: Generator) -> tuple[int, int]:
    start = _at(data, generator)
    return start, min(len(data), start + int(generator.choice([1, 2, 7, 64, 4096])))


def flipped(data: bytes, generator: Generator) -> bytes:
    """Some bits turned over."""
    changed = bytearray(data)
    for _ in range(int(generator.choice([1, 1, 2, 8])) if data else 0):
        changed[int(generator.integers(len(changed)))] ^= 1 << int(generator.integers(8))
    return bytes(changed)


def _truncated(data: bytes, generator: Generator) -> bytes:
    return data[: _at(data, generator)]


def _deleted(data: bytes, generator: Generator) -> bytes:
    start, end = _slice(data, generator)
    return data[:start] + data[end:]


def _spliced(data: bytes, generator: Generator) -> bytes:
    start, end = _slice(data, generator)
    at = _at(data, generator)
    return data[:at] + data[start:end] + data[at:]


def _overwritten(data: bytes, generator: Generator) -> bytes:
    start, end = _slice(data, generator)
    return data[:start] + generator.bytes(end - start) + data[end:]


def _injected(data: bytes, generator: Generator) -> bytes:
    at = _at(data, generator)
    return data[:at] + TEXTS[int(generator.integers(len(TEXTS)))] + data[at:]


def _renumbered(data: bytes, generator: Generator) -> bytes:
    numbers = list(_NUMBER.finditer(data))
    if not numbers:
        return _injected(data, generator)
    match = numbers[int(generator.integers(len(numbers)))]
    return data[: match.start()] + NUMBERS[int(generator.integers(len(NUMBERS)))] + data[match.end() :]


def _lines(change: Callable[[list[bytes], int, int], None]) -> Callable[[bytes, Generator], bytes]:
    def run(data: bytes, generator: Generator) -> bytes:
        lines = data.split(b"\n")
        one, other = (int(generator.integers(len(lines))) for _ in range(2))
        change(lines, one, other)
        return b"\n".join(lines)

    return run


def _swap(lines: list[bytes], one: int, other: int) -> None:
    lines[one], lines[other] = lines[other], lines[one]


_KINDS: tuple[Callable[[bytes, Generator], bytes], ...] = (
    flipped,
    _truncated,
    _deleted,
    _spliced,
    _overwritten,
    _injected,
    _renumbered,
    _lines(lambda lines, one, other: lines.insert(other, lines[one])),
    _lines(lambda lines, one, other: lines.pop(one) and None),
    _lines(_swap),
)


def damaged_json(data: bytes, generator: Generator) -> bytes:
    """A JSON document with values exchanged and keys dropped; now and then damaged as bytes."""
    if generator.integers(4) == 0:
        return damaged(data, generator)
    document = json.loads(data)
    for _ in range(int(generator.integers(1, 4))):
        document = _changed(document, generator)
    return json.dumps(document).encode(errors="surrogatepass")


def _changed(document: Any, generator: Generator) -> Any:
    """One value somewhere within, exchanged, dropped or doubled."""
    if not isinstance(document, dict | list) or not document or generator.integers(4) == 0:
        return VALUES[int(generator.integers(len(VALUES)))]
    keys = list(document) if isinstance(document, dict) else list(range(len(document)))
    key = keys[int(generator.integers(len(keys)))]
    changed = document.copy()
    action = int(generator.integers(6))
    if action == 0:
        del changed[key]
    elif action == 1 and isinstance(changed, list):
        changed.insert(key, changed[key])
    else:
        changed[key] = _changed(document[key], generator)
    return changed
