"""Kernels on several cores: every wrong one differs from the right one, and all can be exported for their chips."""

import jax
import pytest

import ratchet
from benchmarks.cores.programs import PROGRAMS
from benchmarks.lib.sources import names_of, replaced
from ratchet.exam.candidate.contract import check_source
from ratchet.tpu import exporting

QUICK = ("a histogram", "rows of the subcore before, by a signal", "what two cores pass to each other in a loop")


def test_every_program_is_a_kernel_file_and_every_wrong_one_is_another():
    assert len({one.name for one in PROGRAMS}) == len(PROGRAMS)
    for program in PROGRAMS:
        texts = {program.source(wrong) for wrong in ("", *program.wrong)}
        assert len(texts) == 1 + len(program.wrong)
        for text in texts:
            check_source(text.encode(), program.name)


def test_an_edit_that_does_not_fit_is_an_error():
    assert replaced("a b", [("a", "c"), ("c b", "d")]) == "d"
    with pytest.raises(ValueError, match="'a' is there 2 times, wanted once"):
        replaced("a a", [("a", "b")])


@pytest.mark.parametrize(
    ("program", "chip"),
    [
        pytest.param(one, chip, id=f"{one.name} on {chip}", marks=() if one.name in QUICK else pytest.mark.slow)
        for one in PROGRAMS
        for chip in one.chips
    ],
)
def test_a_program_is_exported_for_its_chips_and_gives_what_its_reference_gives(program, chip):
    kernel = names_of(program.source())
    given = jax.eval_shape(kernel["generate_inputs"], jax.random.key(0))
    exported = exporting.read(ratchet.export(kernel["kernel_fn"], *given, chip=chip))
    wanted = jax.tree.leaves(jax.eval_shape(kernel["reference_fn"], *given))
    assert [(one.shape, one.dtype) for one in exported.out_avals] == [(one.shape, one.dtype) for one in wanted]
    assert not exported.unordered_effects
