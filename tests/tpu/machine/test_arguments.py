"""What the caller leaves in registers, beside what the first bundle puts there."""

from __future__ import annotations

import pytest

from ratchet.tpu.dump.columns import Columns, flat
from ratchet.tpu.dump.listing import read_instruction
from ratchet.tpu.machine.emitter import Emitter
from ratchet.tpu.machine.rules import RULES

DEAD = "%s83_s2 = inlined_call_operand.hbm [shape: bf16[8,128], index: 2, kind: input, shape index: {}]"
CONSTANT = "%s49_s2 = smov 7"
LIVE = "%s81_s0 = inlined_call_operand.hbm [shape: bf16[8,128], index: 0, kind: input, shape index: {}]"
READS = "%s41_s3 = sadd.s32 %s81_s0, 1"


def left(*texts: str) -> dict[str, object]:
    """Registers behind one bundle of these instructions."""
    lines, _ = Emitter(Columns(flat([])), {}, {}, RULES).bundle(tuple(map(read_instruction, texts)), 0, 0)
    scope: dict[str, object] = {"A": [100, 200, 300]}
    exec("\n".join(lines), scope)
    return scope


@pytest.mark.parametrize("texts", [(CONSTANT, DEAD), (DEAD, CONSTANT)])
def test_a_constant_takes_the_register_of_an_argument_that_nobody_reads(texts: tuple[str, ...]) -> None:
    assert left(*texts)["s2"] == 7


@pytest.mark.parametrize("texts", [(READS, LIVE), (LIVE, READS)])
def test_an_argument_is_there_before_the_first_bundle(texts: tuple[str, ...]) -> None:
    scope = left(*texts)
    assert (scope["s0"], scope["s3"]) == (100, 101)


def test_a_copy_may_begin_where_an_argument_points() -> None:
    argument = read_instruction(LIVE)
    assert Emitter(Columns(flat([(argument,)])), {}, {}, RULES).pointers == {argument.makes: "hbm"}
