"""Constants that the compiler put into a program of its own accord, such as the routing tables of collectives.

They are in no text: their bytes lie in the compiled executable, ``compiled.runtime_executable().serialize()``, and
where each begins is in the dump of the pass :data:`OFFSETS_PASS`. The format of the executable is not documented;
what is read of it here is that of libtpu 0.0.42.1 and 0.0.51, and anything else is refused.
"""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

from ratchet.tpu.dump.files import TOP, text_of
from ratchet.tpu.dump.outline import CONSTANT_TAGS
from ratchet.values.status import Refusal, Status

OFFSETS_PASS = "final-top-level-llo"
"""Ask for it with ``dump_flags(folder, extra_passes=(OFFSETS_PASS,))``."""

_OFFSET = re.compile(
    rf"(?m)^ *(#allocation\w+) \[.*, offset = (0x[0-9a-f]{{1,16}}|\d{{1,18}}), tag = '(?:{'|'.join(CONSTANT_TAGS)})'\]$"
)
_VARINT, _BYTES = 0, 2  # wire types of protocol buffers
_PROGRAM, _CONSTANTS = 1, 2  # kinds of segments


def constant_segment(executable: bytes, *, compiler: str) -> bytes:
    """The bytes of all such constants, ``b""`` if the program has none.

    The executable holds, in whatever container, one message that lists the segments of the program's image (kind,
    offset, size) and then the image itself. It is recognised by its beginning and by its sizes, which have to agree.

    Raises:
        Refusal: SCHEDULE_UNKNOWN unless there is exactly one such message.
    """
    images: list[bytes] = []
    start = executable.find(b"\x08\x01\x12")
    while start >= 0:
        with contextlib.suppress(IndexError, ValueError):  # else these bytes mean something else
            images.append(_constants_of(executable, start + 2))
        start = executable.find(b"\x08\x01\x12", start + 1)
    if len(images) != 1:
        raise Refusal(
            Status.SCHEDULE_UNKNOWN,
            f"the executable of {compiler} holds {len(images)} program images where one was expected: a new format.",
        )
    return images[0]


def _constants_of(data: bytes, position: int) -> bytes:
    segments: dict[int, tuple[int, int]] = {}
    while data[position] == 0x12:  # field 2: a segment
        size, position = _varint(data, position + 1)
        fields = _fields(data[position : position + size])
        position += size
        extent = fields.get(3)
        if isinstance(extent, bytes) and isinstance(kind := fields.get(1), int):
            place = _fields(extent)
            begin, length = place.get(1, 0), place.get(2, 0)
            if not isinstance(begin, int) or not isinstance(length, int):
                raise ValueError
            segments[kind] = (begin, length)
    if data[position] != 0x1A or _PROGRAM not in segments:  # field 3: the image
        raise ValueError
    size, position = _varint(data, position + 1)
    if size != max(sum(segment) for segment in segments.values()) or position + size > len(data):
        raise ValueError
    begin, length = segments.get(_CONSTANTS, (0, 0))
    return data[position + begin : position + begin + length]


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 64:
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, position
    raise ValueError


def _fields(data: bytes) -> dict[int, int | bytes]:
    fields: dict[int, int | bytes] = {}
    position = 0
    while position < len(data):
        key, position = _varint(data, position)
        value, position = _varint(data, position)
        if key & 7 == _VARINT:
            fields[key >> 3] = value
        elif key & 7 == _BYTES and position + value <= len(data):
            fields[key >> 3] = data[position : position + value]
            position += value
        else:
            raise ValueError
    return fields


def constant_offsets(dump_dir: Path) -> dict[str, int]:
    """Where in the segment each constant of the top level begins, by the name of its allocation."""
    texts = [text_of(path) for path in dump_dir.glob(f"*-{TOP}-*-{OFFSETS_PASS}.txt")]
    return {name: int(offset, 0) for text in texts for name, offset in _OFFSET.findall(text)}
