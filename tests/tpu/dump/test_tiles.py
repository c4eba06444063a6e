"""Programs of the SparseCores: sections, bundles, labels, and what is refused."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.tpu.chips import V6E
from ratchet.tpu.dump.tiles import Instruction, parse
from ratchet.tpu.machine.tiles import work
from ratchet.values.status import Refusal, Status
from tests.refusals import refused

TEXT = """scs
entry:
0x0: {  \t(pc) =\tsbr.rel $0x2  }
0x1: {  \t_ =\tshalt  }
tec
execute0_lowered:
.L0:
0x0: {  \ts1 =\tsadd.s32 @!p0 s2, $0x10;
\tp1 =\tpor !p0, p1  }
.LBB2_1:
0x1: {  \t[tilespmem:s1], [sflag:$0x1] =\tstream.linear.gather @p1 [hbm4b:s3+s4], $0x80, $0x38;
\t[tilespmem:$0x100] =\tvst v63  }
.Ltmp0:
0x2: {  \t_ =\tshalt;
\t(pc) =\tsbr.rel @p0 .LBB2_1-.Ltmp0, $4  }
"""


def read(text: str):
    return parse(text, file="f", compiler="c")


def test_a_file_is_read():
    sections = read(TEXT)
    tiles = sections["tec"]
    assert [len(sections[name].bundles) for name in ("scs", "tec")] == [2, 3]
    assert tiles.labels == {"execute0_lowered": 0, ".L0": 0, ".LBB2_1": 1, ".Ltmp0": 2}
    assert tiles.bundles[0][0] == Instruction(("s1",), "sadd.s32", "!p0", ("s2", "$0x10"))
    assert tiles.bundles[1][0] == Instruction(
        ("[tilespmem:s1]", "[sflag:$0x1]"), "stream.linear.gather", "p1", ("[hbm4b:s3+s4]", "$0x80", "$0x38")
    )
    assert tiles.bundles[2][1].operands == (".LBB2_1-.Ltmp0", "$4")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("0x1: {  \t[tile", "0x2: {  \t[tile", "bundle 0x1 of 'tec' is missing"),
        ("por !p0, p1  }", "por !p0, p1", "is no bundle"),
        ("s1 =\tsadd.s32", "s1 sadd.s32", "bundle 0x0 of 'tec' does not read"),
        ("scs\n", "tac\n", "no program for the sequencer"),
        ("tec\n", "scs\n", "with that of another"),
    ],
)
def test_what_does_not_read_is_refused(old, new, message):
    assert old in TEXT
    with refused(Status.SCHEDULE_UNKNOWN, message):
        read(TEXT.replace(old, new, 1))


@given(st.integers(0, len(TEXT)), st.integers(0, 20), st.text(max_size=10))
def test_a_damaged_file_is_read_or_refused(start, length, put):
    with contextlib.suppress(Refusal):
        sections = read(TEXT[:start] + put + TEXT[start + length :])
        assert "scs" in sections
        assert work(sections, V6E, "k")
