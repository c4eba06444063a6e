"""The LLO modules in what a profiler is handed."""

import pytest

from ratchet.tpu.dump.llo import _protos, schedules

NAMED = "jit_program(0)::kernel_0.3"


def counted(message, count):
    message.utilisation.vload.denominator = 3
    message.utilisation.vstore.denominator = 1
    for row in (message.utilisation.vload.numerator, message.utilisation.vstore.numerator):
        row.extend([0] * count)
    message.utilisation.spill.extend([1] * count)
    message.utilisation.fill.extend([2] * count)


def module(bundles=4, numbers=((1, 0), (2, 1))):
    message = _protos().new("Module")
    message.name, message.top.limit = "kernel_0.3", bundles
    for number, bundle in numbers:
        message.top.members.add().instruction.number = number
        message.top.members[-1].instruction.bundle = bundle
    counted(message, bundles)
    return message


def space(*events, plane="/host:metadata"):
    message = _protos().new("XSpace")
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


@pytest.mark.parametrize(
    ("events", "what"),
    [
        (((NAMED, module()), (NAMED, module())), "two modules of kernel_0.3"),
        (((NAMED, module(numbers=((1, 4),))),), "instruction 1 of kernel_0.3 is in no bundle, or twice"),
        (((NAMED, module(numbers=((1, -1),))),), "in no bundle, or twice"),
        (((NAMED, module(numbers=((1, 0), (1, 1)))),), "in no bundle, or twice"),
        (((NAMED, b"\x07no message"),), "."),
    ],
)
def test_what_cannot_be_is_refused(events, what):
    with pytest.raises(ValueError, match=what):
        schedules(space(*events))


def test_counts_of_other_bundles_are_refused():
    one = module()
    one.utilisation.fill.append(0)
    with pytest.raises(ValueError, match="different numbers of bundles"):
        schedules(space((NAMED, one)))


def test_bytes_that_are_no_profile_are_refused():
    with pytest.raises(ValueError, match=r"\w"):
        schedules(b"\x07no message")
