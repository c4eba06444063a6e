"""Which operands of a kernel XLA computes beside it, from HLO alone."""

import pytest

from ratchet.tpu.computed_operands import computed_operands
from tests.hlo_texts import hlo_of

CALL = 'custom_call_target="tpu_custom_call", metadata={op_name="jit(f)/outer/kernel/call"}'


def computed(type_: str, operand: str, *before: str) -> list[tuple[int, int, str]]:
    """Place, number and type of what is computed, of a kernel with a parameter and ``operand``."""
    lines = ["%x = f32[8] parameter(0)", f"%t = {type_} parameter(1)", *before]
    module = hlo_of("\n ".join([*lines, f"ROOT %k = f32[8] custom-call(%x, {operand}), {CALL}"]))
    return [(one.place, one.number, str(one.type)) for one in computed_operands(module)]


def test_where_an_operand_is_in_the_program_and_in_the_artefact():
    module = hlo_of(f"%x = f32[8] parameter(0)\n %n = f32[8] negate(%x)\n ROOT %k = f32[8] custom-call(%x, %n), {CALL}")
    (one,) = computed_operands(module)
    assert (one.launch, one.place, one.site, one.number, str(one.type)) == ("k", 1, "kernel/call", 1, "f32[8]")


@pytest.mark.parametrize(
    ("type_", "whether"),
    [
        ("f32[1024]", True),
        ("f32[1025]", False),
        ("s8[32,32]", True),
        ("s8[41,25]", False),
        ("pred[1024]", True),
        ("bf16[4]", False),
        ("s32[1025]", True),
        ("s32[1024,1024]", True),
        ("s32[1024,1025]", False),
        ("u32[1048576]", True),
        ("u32[1048577]", False),
    ],
)
def test_what_may_steer_is_asked_for(type_, whether):
    operation = {"p": "not", "u": "not"}.get(type_[0], "negate")
    assert computed(type_, "%n", f"%n = {type_} {operation}(%t)") == ([(1, 1, type_)] if whether else [])


@pytest.mark.parametrize(
    ("operand", "before", "known"),
    [
        ("%t", (), True),
        ("%c", ("%c = s32[4] copy(%t)",), True),
        ("%b", ("%b = s32[2,2] bitcast(%t)", "%c = s32[2,2] copy(%b)"), True),
        ("%c", ("%c = s32[4] constant({1, 2, 3, 4})",), True),
        ("%n", ("%n = s32[4] negate(%t)",), False),
        ("%c", ("%n = s32[4] negate(%t)", "%c = s32[4] copy(%n)"), False),
        ("%c", ("%c = bf16[4] constant({1, 2, 3, 4})",), True),  # it cannot steer
    ],
)
def test_copies_of_parameters_and_constants_are_known(operand, before, known):
    assert (computed("s32[4]", operand, *before) == []) is known


def test_a_parameter_of_another_computation_is_computed():
    """Of a loop's body: it differs from iteration to iteration."""
    module = hlo_of(
        "HloModule m\n\n%body (p: s32[4]) -> s32[4] {\n  %p = s32[4] parameter(0)\n"
        f"  ROOT %k = s32[4] custom-call(%p), {CALL}\n}}\n\n"
        "ENTRY %main (x: s32[4]) -> s32[4] {\n  %x = s32[4] parameter(0)\n"
        "  ROOT %c = s32[4] call(%x), to_apply=%body\n}\n"
    )
    assert [one.place for one in computed_operands(module)] == [0]


def test_what_is_made_inside_a_fusion_is_not_asked_for():
    module = hlo_of(
        "HloModule m\n\n%fused (a: s32[8], b: s32[8]) -> s32[8] {\n"
        "  %a = s32[8] parameter(0)\n  %b = s32[8] parameter(1)\n  %twice = s32[8] add(%a, %a)\n"
        f"  ROOT %k.1 = s32[8] custom-call(%twice, %b), {CALL}\n}}\n\n"
        "ENTRY %main (x: s32[8]) -> s32[8] {\n  %x = s32[8] parameter(0)\n  %n = s32[8] negate(%x)\n"
        "  ROOT %k = s32[8] fusion(%x, %n), kind=kCustom, calls=%fused\n}\n"
    )
    assert [(one.launch, one.place, one.number) for one in computed_operands(module)] == [("k", 1, 1)]
