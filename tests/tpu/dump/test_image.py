"""Constants of an executable: a damaged one is refused, whatever is wrong with it."""

from pathlib import Path

import pytest

from ratchet.tpu.dump.image import OFFSETS_PASS, constant_offsets, constant_segment
from ratchet.values.status import Refusal, Status
from tests.refusals import refused


def varint(number: int) -> bytes:
    low = [number >> shift & 127 for shift in range(0, max(1, number.bit_length()), 7)]
    return bytes([*(part | 128 for part in low[:-1]), low[-1]])


def field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def segment(kind: int, begin: int | None, length: int | None, *more: bytes) -> bytes:
    extent = b"".join(field(n, value) for n, value in ((1, begin), (2, length)) if value is not None)
    return field(2, field(1, kind) + field(3, extent) + b"".join(more))


def executable(*segments: bytes, image: bytes) -> bytes:
    return b"around \x08\x01" + b"".join(segments) + field(3, image) + b"and behind"


CODE = bytes(range(200)) * 2


@pytest.mark.parametrize(
    ("segments", "image", "constants"),
    [
        ([segment(1, 0, 4), segment(2, 4, 4)], b"codeDATA", b"DATA"),
        ([segment(2, 4, 4), segment(1, 0, 4)], b"codeDATA", b"DATA"),
        ([segment(1, 4, 4), segment(2, 0, 4)], b"DATAcode", b"DATA"),
        ([segment(1, 4, 4), segment(2, None, 4)], b"DATAcode", b"DATA"),
        ([segment(1, None, 4), segment(2, 4, None)], b"code", b""),
        ([segment(1, 0, 4)], b"code", b""),
        ([segment(1, 0, 4), segment(3, 4, 4), segment(2, 8, 1)], b"codeMOREx", b"x"),
        ([segment(1, 0, 400), segment(2, 400, 300)], CODE + bytes(300), bytes(300)),
        ([segment(1, 0, 4, field(9, b"new"), field(10, 7)), segment(2, 4, 4)], b"codeDATA", b"DATA"),
        ([segment(1, 0, 4), field(2, field(1, 7)), segment(2, 4, 4)], b"codeDATA", b"DATA"),
    ],
)
def test_the_constants_of_an_image(segments: list[bytes], image: bytes, constants: bytes) -> None:
    assert constant_segment(executable(*segments, image=image), compiler="c") == constants


@pytest.mark.parametrize(
    ("segments", "image"),
    [
        ([segment(2, 4, 4)], b"codeDATA"),
        ([segment(1, 0, 4), segment(2, 4, 4)], b"codeDAT"),
        ([segment(1, 0, 4), segment(2, 4, 4)], b"codeDATAx"),
        ([segment(1, 0, 4), field(2, field(1, 2) + field(3, field(1, b"4") + field(2, 4)))], b"codeDATA"),
        ([segment(1, 0, 4), field(2, field(1, 2) + field(3, field(1, 4) + field(2, b"4")))], b"codeDATA"),
        ([segment(1, 0, 4), field(2, b"\x0d1234")], b"code"),
        ([segment(1, 0, 4), field(2, b"\x0a\x7f1234")], b"code"),
        ([b"\x12" + b"\x80" * 100_000], b""),
    ],
)
def test_an_image_that_contradicts_itself_is_none(segments: list[bytes], image: bytes) -> None:
    with refused(Status.SCHEDULE_UNKNOWN, "c holds 0 program images"):
        constant_segment(executable(*segments, image=image), compiler="c")


def test_an_executable_has_one_image_and_all_of_it() -> None:
    whole = executable(segment(1, 0, 4), segment(2, 4, 4), image=b"codeDATA").removesuffix(b"and behind")
    assert constant_segment(whole, compiler="c") == b"DATA"
    for size in range(len(whole)):
        with pytest.raises(Refusal):
            constant_segment(whole[:size], compiler="c")
    with pytest.raises(Refusal, match="c holds 2 program images"):
        constant_segment(whole + whole, compiler="c")


def test_where_constants_begin(tmp_path: Path) -> None:
    line = "  #allocation{} [shape = 'u8[8]', space=hbm, size = 0x8, offset = {}, tag = '{}']\n"
    text = line.format(1, "0x10", "constant literal") + line.format("2_x", "32", "deduplicated constant")
    (tmp_path / f"3-TLP-9-{OFFSETS_PASS}.txt").write_text(text + line.format(3, "0x40", "another"))
    (tmp_path / f"4-other-9-{OFFSETS_PASS}.txt").write_text(line.format(4, "0x50", "constant literal"))
    assert constant_offsets(tmp_path) == {"#allocation1": 16, "#allocation2_x": 32}
