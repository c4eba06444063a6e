"""The HLO copy trap, on what the real compiler does with small kernels."""

import jax.numpy as jnp
import pytest

from ratchet.exam.judge import audit
from ratchet.tpu.compiler.compile import copy_trap
from ratchet.tpu.dump import copies
from tests.exam.judge.programs import artefact, blocked, double
from tests.hlo_texts import hlo_of

BF16, F32 = jnp.bfloat16, jnp.float32


def add(a_ref, b_ref, o_ref):
    o_ref[...] = a_ref[...] + b_ref[...]


def sum_of_two(width):
    return artefact(blocked(add, (1024, width), (256, width), BF16, inputs=2), *[((1024, width), BF16)] * 2)


def moves(program):
    """All but prefetches, which only move what the kernel reads anyway."""
    return [(c.kind, c.injected, c.cause) for c in program.copies if c.kind != "prefetch"]


@pytest.mark.parametrize("rows", [1024, 1000])
def test_a_width_of_128_needs_no_copy(compiled, rows):
    program = compiled(artefact(blocked(double, (rows, 128), (rows, 128), BF16), ((rows, 128), BF16)))
    assert program.copies == ()
    assert copy_trap(program) == ((), "none")


@pytest.mark.parametrize("width", [64, 96])
def test_a_width_that_is_no_lane_tile_costs_a_copy_per_operand_and_one_of_the_result(compiled, width):
    program = compiled(sum_of_two(width))
    assert moves(program) == [
        ("relayout", True, "the compiler's, at operand 0 of add.3"),
        ("relayout", True, "the compiler's, at operand 1 of add.3"),
        ("relayout", True, "the compiler's, at result 0 of add.3"),
    ]
    padded = {c.size_bytes for c in program.copies if "operand" in c.cause and c.kind == "relayout"}
    assert padded == {1024 * 128 * 2}, "rows are padded to 128 lanes"
    _, said = copy_trap(program)
    assert "4 injected by the compiler, 0 asked for" in said


def test_transposes_of_the_authors_are_his(compiled):
    kernel = blocked(add, (1024, 128), (256, 128), BF16, inputs=2)
    program = compiled(artefact(lambda q, k: kernel(q, k.T).T, ((1024, 128), BF16), ((128, 1024), BF16)))
    assert moves(program) == [
        ("relayout", False, "the author's transpose at operand 1 of add.3"),
        ("relayout", False, "the author's transpose at result 0 of add.3"),
    ]


def test_copies_inside_fusions_are_seen(compiled):
    kernel = blocked(double, (4, 512, 128), (1, 512, 128), BF16)
    program = compiled(
        artefact(lambda x: jnp.swapaxes(kernel(jnp.swapaxes(x, 0, 1)), 0, 1), ((512, 4, 128), BF16)),
    )
    assert len(program.copies) == 2  # libtpu 0.0.42 makes one of them in a fusion
    assert [(kind, injected) for kind, injected, _ in moves(program)] == [("relayout", False)] * 2


def test_one_kernels_transpose_does_not_excuse_another_kernels_copy(compiled):
    narrow, wide = blocked(double, (1024, 96), (256, 96), BF16), blocked(double, (1024, 128), (256, 128), BF16)

    def both(x, y):
        return narrow(x), wide(y.T)

    program = compiled(artefact(both, ((1024, 96), BF16), ((128, 1024), BF16)))
    assert sorted(injected for _, injected, _ in moves(program)) == [False, True, True]
    assert len(program.kernels) == 2


def test_an_input_that_is_overwritten_and_used_elsewhere_is_copied(compiled):
    kernel = blocked(double, (1024, 128), (256, 128), F32, input_output_aliases={0: 0})
    program = compiled(artefact(lambda x: (kernel(x), x), ((1024, 128), F32)))
    assert moves(program)[0][:2] == ("copy", True)


def test_a_computation_is_no_copy(compiled):
    kernel = blocked(double, (1024, 128), (256, 128), BF16)
    program = compiled(artefact(lambda x: kernel((x * 2).astype(BF16)), ((1024, 128), F32)))
    assert moves(program) == []
    assert audit.program(program)[0] == program.kernels == ("double.3",)


def around(type_: str, *lines: str) -> str:
    """A kernel whose operand ``%in`` is made by ``lines``; what follows it reads ``%k``."""
    kernel = f'%k = {type_} custom-call(%in), custom_call_target="tpu_custom_call"'
    return "\n ".join(["%x = f32[8,128]{1,0} parameter(0)", *lines[:-1], kernel, lines[-1]])


PLAIN = hlo_of(around("f32[8,128]{1,0}", "%in = f32[8,128]{1,0} bitcast(%x)", "ROOT %o = f32[8,128]{1,0} negate(%k)"))
"""Before the passes, where the author moved nothing."""


def found(text, lowered=PLAIN):
    return [(c.instruction, c.kind, c.injected, c.cause) for c in copies.find(hlo_of(text), lowered)]


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("%in = f32[8,128]{1,0} copy(%x)", "copy"),
        ("%in = f32[8,128]{0,1} copy(%x)", "relayout"),
        ("%in = f32[8,128]{1,0:T(8,128)} copy(%x)", "relayout"),
        ("%in = f32[8,128]{1,0:S(1)} copy(%x)", "prefetch"),
        ("%in = f32[8,128]{1,0} transpose(%x), dimensions={0,1}", "relayout"),
    ],
)
def test_kinds_of_copies(line, kind):
    text = around("f32[8,128]{1,0}", line, "ROOT %o = f32[8,128]{1,0} negate(%k)")
    assert found(text) == [("in", kind, True, "the compiler's, at operand 0 of k")]


@pytest.mark.parametrize("space", ["", ":S(1)"])
def test_a_copy_that_is_started_early_is_a_prefetch(space):
    text = around(
        "f32[8,128]{1,0}",
        f"%s = (f32[8,128]{{1,0{space}}}, f32[8,128]{{1,0}}, u32[]) copy-start(%x)",
        f"%in = f32[8,128]{{1,0{space}}} copy-done(%s)",
        "ROOT %o = f32[8,128]{1,0} negate(%k)",
    )
    assert found(text) == [("s", "prefetch", True, "the compiler's, at operand 0 of k")]


def test_a_copy_is_as_large_as_it_is_laid_out():
    text = around("f32[8,128]{1,0}", "%in = f32[8,128]{1,0:T(16,128)} copy(%x)", "ROOT %o = f32[8,128]{1,0} negate(%k)")
    assert [one.size_bytes for one in copies.find(hlo_of(text), PLAIN)] == [16 * 128 * 4]


FUSED = (
    "HloModule m\n\n%f (p: f32[8,128]) -> f32[8,128] {\n  %p = f32[8,128] parameter(0)\n  LINES\n}\n\n"
    "ENTRY %main (x: f32[8,128]) -> f32[8,128] {\n  %x = f32[8,128] parameter(0)\n"
    "  ROOT %o = f32[8,128] fusion(%x), kind=kLoop, calls=%f\n}\n"
)


@pytest.mark.parametrize(
    ("lines", "kinds"),
    [
        ("ROOT %c = f32[8,128] copy(%p)", ["relayout"]),
        ("%b = f32[1024] reshape(%p)\n  %c = f32[1024] copy(%b)\n  ROOT %r = f32[8,128] reshape(%c)", ["relayout"]),
        ("ROOT %c = f32[8,128] transpose(%p), dimensions={0,1}", ["relayout"]),
        ("%b = f32[1024] bitcast(%p)\n  ROOT %r = f32[8,128] bitcast(%b)", []),
        ("%c = f32[8,128] copy(%p)\n  ROOT %n = f32[8,128] negate(%c)", []),
    ],
)
def test_a_fusion_that_only_moves_is_a_copy(lines, kinds):
    assert [kind for _, kind, _, _ in found(FUSED.replace("LINES", lines))] == kinds


def test_a_copy_far_from_any_kernel_is_the_compilers_whatever_its_name():
    plain = "%x = f32[8,128]{1,0} parameter(0)\n ROOT %o = f32[8,128]{0,1} copy(%x)"
    assert found(plain) == [("o", "relayout", True, "the compiler's")]
    named = plain + ', metadata={op_name="jit(f)/swap"}'
    assert found(named) == [("o", "relayout", True, "the compiler's, of jit(f)/swap")], "it names what it copies"


def test_a_kernel_is_seen_through_what_changes_no_value():
    text = around(
        "f32[8,128]{1,0}",
        "%c = f32[8,128]{0,1} copy(%x)",
        "%t = (f32[8,128]{0,1}, f32[8,128]{1,0}) tuple(%c, %x)",
        "%g = f32[8,128]{0,1} get-tuple-element(%t), index=0",
        "%in = f32[8,128]{1,0} bitcast(%g)",
        "%b = f32[1024]{0} bitcast(%k)\n ROOT %o = f32[1024]{0:T(1024)} copy(%b)",
    )
    assert found(text) == [
        ("c", "relayout", True, "the compiler's, at operand 0 of k"),
        ("o", "relayout", True, "the compiler's, at result 0 of k"),
    ]
    computed = text.replace("bitcast(%g)", "negate(%g)").replace("f32[1024]{0} bitcast(%k)", "f32[1024]{0} reshape(%k)")
    assert [cause for *_, cause in found(computed)] == ["the compiler's", "the compiler's"]


TWO = '%k = f32[8,128]{1,0} custom-call(%a, %b), custom_call_target="tpu_custom_call"'


@pytest.mark.parametrize("opcode", ["transpose(%y), dimensions={1,0}", "bitcast(%t)"])
def test_the_author_asked_for_what_he_moved_and_at_that_operand_alone(opcode):
    before = (
        "%x = f32[8,128]{1,0} parameter(0)\n %y = f32[128,8]{1,0} parameter(1)\n"
        " %t = f32[8,128]{0,1} transpose(%y), dimensions={1,0}\n %a = f32[8,128]{1,0} bitcast(%x)\n"
        f" %b = f32[8,128]{{0,1}} {opcode}\n {TWO}\n %p = f32[1,8,128]{{2,1,0}} bitcast(%k)\n"
        " ROOT %o = f32[128,8,1]{2,1,0} transpose(%p), dimensions={2,1,0}"
    )
    after = (
        "%x = f32[8,128]{1,0} parameter(0)\n %y = f32[8,128]{1,0} parameter(1)\n %a = f32[8,128]{0,1} copy(%x)\n"
        f" %b = f32[8,128]{{0,1}} copy(%y)\n {TWO}\n ROOT %o = f32[8,128]{{0,1}} copy(%k)"
    )
    assert [(injected, cause) for _, _, injected, cause in found(after, hlo_of(before))] == [
        (True, "the compiler's, at operand 0 of k"),
        (False, "the author's transpose at operand 1 of k"),
        (False, "the author's transpose at result 0 of k"),
    ]
    wider = after.replace("f32[8,128]", "f32[16,128]")
    assert {injected for _, _, injected, _ in found(wider, hlo_of(before))} == {True}, "another kernel's"
