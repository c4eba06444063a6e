"""The HLO copy trap, on what the real compiler does with small kernels."""

import jax.numpy as jnp
import pytest

from ratchet.compiler.compile import copy_trap
from ratchet.judge import audit
from tests.judge.programs import artefact, blocked, double

BF16, F32 = jnp.bfloat16, jnp.float32


def add(a_ref, b_ref, o_ref):
    o_ref[...] = a_ref[...] + b_ref[...]


def sum_of_two(width, dtype=BF16):
    return artefact(blocked(add, (1024, width), (256, width), dtype, inputs=2), *[((1024, width), dtype)] * 2)


def moves(program):
    """All but prefetches, which only move what the kernel reads anyway."""
    return [(c.kind, c.injected, c.cause) for c in program.copies if c.kind != "prefetch"]


def test_a_width_of_128_needs_no_copy(compiled):
    program = compiled(sum_of_two(128))
    assert program.copies == ()
    assert copy_trap(program) == ((), "none")


def test_an_odd_number_of_rows_needs_none_either(compiled):
    assert compiled(artefact(blocked(double, (1000, 128), (1000, 128), BF16), ((1000, 128), BF16))).copies == ()


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


def test_a_transpose_of_the_authors_is_his(compiled):
    kernel = blocked(add, (1024, 128), (256, 128), BF16, inputs=2)
    program = compiled(artefact(lambda q, k: kernel(q, k.T), ((1024, 128), BF16), ((128, 1024), BF16)))
    assert moves(program) == [("relayout", False, "the author's transpose at operand 1 of add.3")]


def test_a_transpose_of_the_result_is_the_authors(compiled):
    kernel = blocked(double, (1024, 128), (256, 128), BF16)
    program = compiled(artefact(lambda x: kernel(x).T, ((1024, 128), BF16)))
    assert moves(program) == [("relayout", False, "the author's transpose at result 0 of double.3")]


def test_copies_inside_fusions_are_seen(compiled):
    kernel = blocked(double, (4, 512, 128), (1, 512, 128), BF16)
    program = compiled(
        artefact(lambda x: jnp.swapaxes(kernel(jnp.swapaxes(x, 0, 1)), 0, 1), ((512, 4, 128), BF16)),
    )
    assert "copy_bitcast_fusion" in [c.instruction for c in program.copies]
    assert [(kind, injected) for kind, injected, _ in moves(program)] == [("relayout", False)] * 2


def test_one_kernels_transpose_does_not_excuse_another_kernels_copy(compiled):
    narrow, wide = blocked(double, (1024, 96), (256, 96), BF16), blocked(double, (1024, 128), (256, 128), BF16)

    def both(x, y):
        return narrow(x), wide(y.T)

    program = compiled(artefact(both, ((1024, 96), BF16), ((128, 1024), BF16)))
    assert sorted(injected for _, injected, _ in moves(program)) == [False, True, True]
    assert len(program.kernels) == 2


def test_an_input_that_is_overwritten_is_donated_and_not_copied(compiled):
    kernel = blocked(double, (1024, 128), (256, 128), F32, input_output_aliases={0: 0})
    assert moves(compiled(artefact(kernel, ((1024, 128), F32)))) == []


def test_an_input_that_is_overwritten_and_used_elsewhere_is_copied(compiled):
    kernel = blocked(double, (1024, 128), (256, 128), F32, input_output_aliases={0: 0})
    program = compiled(artefact(lambda x: (kernel(x), x), ((1024, 128), F32)))
    assert moves(program)[0][:2] == ("copy", True)


def test_a_computation_is_no_copy(compiled):
    kernel = blocked(double, (1024, 128), (256, 128), BF16)
    program = compiled(artefact(lambda x: kernel((x * 2).astype(BF16)), ((1024, 128), F32)))
    assert moves(program) == []
    assert audit.program(program)[0] == program.kernels == ("double.3",)
