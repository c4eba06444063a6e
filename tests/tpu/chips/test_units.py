"""What instructions of other chips than v5e occupy."""

import pytest

from ratchet.tpu.chips import TPU7X, V5P, V6E
from ratchet.tpu.chips.units import mxu_cycles, slots


@pytest.mark.parametrize(
    ("opcode", "rows", "peak", "clock_hz"),
    [
        ("vmatmul.mubr.bf16.gmra.mxu0", 16, V6E.peak_bf16_flops, V6E.clock_hz),
        ("vmatmul.mubr.s8.vlgmr.msra.gmra.mxu0", 32, V6E.peak_int8_ops, V6E.clock_hz),
        ("vmatmul.mubr.s4.gmra.mxu1", 64, V6E.peak_int4_ops, V6E.clock_hz),
        ("vmatmul.mubr.f8e5m2.bf16.gmra.mxu0", 32, V6E.peak_fp8_flops, V6E.clock_hz),
        ("vmatmul.mubr.msk.f8e4m3b11.bf16.gmra.mxu0", 32, V6E.peak_fp8_flops, V6E.clock_hz),
        ("vmatmul.mubr.f8e4m3fn.gmra.mrb.mxu0", 32, TPU7X.peak_fp8_flops, 2.2e9),
    ],
)
def test_a_wide_unit_that_never_idles_reaches_the_peak_of_its_operands(opcode, rows, peak, clock_hz):
    """Two units; the clock for tpu7x is that of its peak."""
    assert 2 * rows * 2 * 256**2 / mxu_cycles(opcode) * clock_hz == pytest.approx(peak, rel=0.01)


@pytest.mark.parametrize(
    ("kind", "rows", "peak"),
    [("bf16", 16, V5P.peak_bf16_flops), ("s8", 32, V5P.peak_int8_ops), ("s4", 64, V5P.peak_int4_ops)],
)
def test_so_do_the_units_of_v5p(kind, rows, peak):
    """Four on each of two cores."""
    cycles = mxu_cycles(f"vmatmul.{kind}.gmra.mxu2")
    assert 8 * rows * 2 * 128**2 / cycles * V5P.clock_hz == pytest.approx(peak, rel=0.01)


def test_a_product_of_unknown_operands_is_not_guessed():
    assert mxu_cycles("vmatmul.mubr.f4.gmra.mxu0") is None


@pytest.mark.parametrize(
    ("opcode", "taken"),
    [
        ("vsinq.f32", ("VALU", "EUP")),  # transcendental functions have a unit of their own
        ("vcosq.f32", ("VALU", "EUP")),
        ("vtanh.f32", ("VALU", "EUP")),
        ("vmovacc.add.low.vacc1", ("VALU",)),  # what accumulates beside the registers is vector arithmetic
        ("vmac.bf16.f32.vacc0", ("VALU",)),
        ("vclamp-gez-f32", ("VALU",)),
        ("vandn.8x128.u32", ("VALU",)),
    ],
)
def test_slots(opcode, taken):
    assert slots(opcode, spill=False, moves=False) == taken
