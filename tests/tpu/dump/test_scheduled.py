"""Texts of the last pass and schedules -> the texts that are read of a unit."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.tpu.dump.listing import parse
from ratchet.tpu.dump.llo import Schedule
from ratchet.tpu.dump.scheduled import NotScheduled, scheduled
from ratchet.tpu.dump.utilisation import capacities, spills

TEXT = """// [Enable stack traces via -xla_jf_collect_llo_stack_trace]
$region0: #{kernel_0.3}
  #allocation0 [shape = 'u32[]', space=smem, size = 0x4, offset = 0x4, fixed_abs, tag = 'core index']
  %s1_s0 = inlined_call_operand.hbm [shape: bf16[8,128], index: 0, kind: input, shape index: {}] /* window */
  loop: start=0, step=1, limit=8
  $region1: #{kernel_0.3} parent=0 // loop_body
    %s2_s3 = sphi %s5_s3, %s9_s3 /* iteration index */
    %s3_s1 = sshll.u32 %s2_s3, 4
    %s4_s1 = int_to_ptr.hbm [resolvable:$true] %s3_s1
    %s5_s2 = int_to_ptr.vmem [resolvable:$true] %s3_s1
    %6 = dma.hbm_to_vmem [thread:$0] /*hbm=*/%s4_s1, /*size_in_granules=*/1024 /*
base_bounds: (2048, 1)
%99 = no instruction
*/
    // Predicated region
    $region2: #{kernel_0.3} parent=1 // pred_check
      _
    %p7_p0 = scmp.eq.s32.totalorder %s2_s3, 8 /* loc("t":3:1) */
    %8 = sbr.rel (%p7_p0) /* loc("t":4:1) */ target = $region1
    %v9_v1 = vadd.f32 %v8_v0, %v8_v0
"""
SCHEDULE = Schedule(
    bundle={1: 0, 2: 1, 3: 1, 4: 2, 5: 2, 6: 3, 7: 2, 8: 5, 9: 5},
    start={0: 0, 1: 1, 2: 5},
    bundles=6,
    limit=6,
    busy={"VLOAD": (3, [0] * 6), "VLOAD:FILL": (3, [0, 2, 0, 0, 0, 1]), "VSTORE:SPILL": (1, [0, 0, 0, 0, 1, 0])},
)


def read(made):
    return parse(made.listing, made.outline, file="a.txt", compiler="libtpu 1")


def test_every_instruction_is_in_its_bundle_and_branches_go_to_bundles():
    made = scheduled(TEXT, SCHEDULE)
    bundles = read(made).bundles
    assert [[one.makes for one in bundle] for bundle in bundles] == [
        ["s1"], ["s3", "s2"], ["s5", "p7", "s4"], ["6"], [], ["8", "v9"],
    ]  # fmt: skip
    assert bundles[5][0].form.target == 1
    assert bundles[3][0].notes.text.count("base_bounds") == 1
    assert set(read(made).allocations) == {"#allocation0"}


def test_utilisation_says_what_is_counted():
    text = scheduled(TEXT, SCHEDULE).utilisation
    assert spills(text, file="a") == (1, 3)
    assert capacities(text, file="a") == {"VLOAD": 3, "FILL": 3, "SPILL": 1}


def test_a_bundle_behind_the_last_region_may_be_branched_to():
    made = scheduled(TEXT.partition("  loop:")[0], replace(SCHEDULE, bundle={1: 1}, bundles=2, limit=1, busy={}))
    assert [len(bundle) for bundle in read(made).bundles] == [0, 1]


@pytest.mark.parametrize(
    ("text", "changed", "what"),
    [
        (TEXT, {"bundle": SCHEDULE.bundle | {77: 1}}, "10 instructions are scheduled, 1 of them not in the text"),
        (TEXT, {"bundle": {1: 0}}, "instruction 2 is in no bundle, or there twice"),
        (TEXT + "%v9_v1 = vadd.f32 %v8_v0, %v8_v0\n", {}, "instruction 9 is in no bundle, or there twice"),
        (TEXT.replace("target = $region1", "to $region1 /* far */"), {}, "a branch of unknown form: %8 = sbr.rel"),
        (TEXT, {"start": {}}, "a branch to region 1, which is not there"),
        (TEXT + "something else\n", {}, "a line of unknown form: something else"),
        (TEXT.replace("*/\n    // Pred", "\n    // Pred"), {}, "a comment never ends"),
    ],
)
def test_what_does_not_fit_together_is_refused(text, changed, what):
    with pytest.raises(NotScheduled, match=what):
        scheduled(text, replace(SCHEDULE, **changed))


@given(st.text(alphabet="%$#_=/* \nabsv019.", max_size=200), st.integers(0, len(TEXT)))
def test_any_text_reads_or_is_refused(piece, at):
    try:
        made = scheduled(TEXT[:at] + piece + TEXT[at:], SCHEDULE)
    except NotScheduled:
        return
    assert made.listing.count(" : {") >= SCHEDULE.bundles
