"""What a profiler is handed of a unit, and its text after the last pass -> the texts that are read of it."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.tpu.compiler.fast.bundles import Schedule, protos, scheduled, schedules
from ratchet.tpu.dump.files import LISTING_PASS, OUTLINE_PASS, UTILISATION_PASS
from ratchet.tpu.dump.listing import parse
from ratchet.tpu.dump.memory import capacities, spills

NAMED = "jit_program(0)::kernel_0.3"


def module(bundles=4, numbers=((1, 0), (2, 1))):
    message = protos().new("Module")
    message.name, message.top.limit = "kernel_0.3", bundles
    for number, bundle in numbers:
        message.top.members.add().instruction.number = number
        message.top.members[-1].instruction.bundle = bundle
    counted = message.utilisation
    counted.vload.denominator, counted.vstore.denominator = 3, 1
    for row, count in (
        (counted.vload.numerator, 0),
        (counted.vstore.numerator, 0),
        (counted.spill, 1),
        (counted.fill, 2),
    ):
        row.extend([count] * bundles)
    return message


def space(*events, plane="/host:metadata"):
    message = protos().new("XSpace")
    message.planes.add(name="/device:CUSTOM:Megascale Trace")
    message.planes.add(name=plane)
    for number, (name, one) in enumerate(events):
        event = message.planes[1].events[number]
        event.name = name
        event.stats.add(value=one if isinstance(one, bytes) else one.SerializeToString())
    return message.SerializeToString()


def test_instructions_of_all_regions_have_their_bundle():
    one = module()
    loop = one.top.members.add().loop
    for name, number in (("pre_header", 1), ("body", 2), ("exit", 3)):
        part = getattr(loop, name)
        part.number, part.start = number, number
        part.members.add().instruction.number = 10 + number
        part.members[0].instruction.bundle = number
    held = loop.body.members.add().predicated.predicated
    held.number, held.start = 7, 2
    held.members.add().region.members.add().instruction.number = 20
    (found,) = schedules(space((NAMED, one))).values()
    assert found.bundle == {1: 0, 2: 1, 11: 1, 12: 2, 13: 3, 20: 0}
    assert {number: found.start[number] for number in (1, 2, 3, 7)} == {1: 1, 2: 2, 3: 3, 7: 2}
    assert (found.bundles, found.limit) == (4, 4)
    assert found.busy["VSTORE:SPILL"] == (1, [1, 1, 1, 1])
    assert found.busy["VLOAD:FILL"] == (3, [2, 2, 2, 2])


def test_only_units_of_the_hosts_metadata_are_read():
    whole = ("jit_program(812)", b"an HLO module")
    assert set(schedules(space((NAMED, module()), whole))) == {"kernel_0.3"}
    assert schedules(space((NAMED, module()), plane="/host:CPU")) == {}
    assert schedules(b"") == {}


def test_a_bundle_may_lie_behind_the_last_region():
    one = module()
    one.top.limit = 3
    (found,) = schedules(space((NAMED, one))).values()
    assert (found.bundles, found.limit) == (4, 3)


def miscounted():
    one = module()
    one.utilisation.fill.append(0)
    return one


@pytest.mark.parametrize(
    ("profile", "what"),
    [
        (space((NAMED, module()), (NAMED, module())), "two modules of kernel_0.3"),
        (space((NAMED, module(numbers=((1, 4),)))), "instruction 1 of kernel_0.3 is in no bundle, or twice"),
        (space((NAMED, module(numbers=((1, -1),)))), "in no bundle, or twice"),
        (space((NAMED, module(numbers=((1, 0), (1, 1))))), "in no bundle, or twice"),
        (space((NAMED, miscounted())), "different numbers of bundles"),
        (space((NAMED, b"\x07no message")), "."),
        (b"\x07no message", "."),
    ],
)
def test_a_profile_that_cannot_be_is_refused(profile, what):
    with pytest.raises(ValueError, match=what):
        schedules(profile)


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
    return parse(made[LISTING_PASS], made[OUTLINE_PASS], file="a.txt", compiler="libtpu 1")


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
    text = scheduled(TEXT, SCHEDULE)[UTILISATION_PASS]
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
    with pytest.raises(ValueError, match=what):
        scheduled(text, replace(SCHEDULE, **changed))


@given(st.text(alphabet="%$#_=/* \nabsv019.", max_size=200), st.integers(0, len(TEXT)))
def test_any_text_reads_or_is_refused(piece, at):
    try:
        made = scheduled(TEXT[:at] + piece + TEXT[at:], SCHEDULE)
    except ValueError:
        return
    assert made[LISTING_PASS].count(" : {") >= SCHEDULE.bundles
