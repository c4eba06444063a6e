"""All chips of a slice wait, and nothing is under way: who waits for whom, and for what."""

from __future__ import annotations

from ratchet.tpu.machine.slice_member import Shared, SliceMember
from ratchet.values.status import Refusal, Status


def deadlock(shared: Shared) -> Refusal:
    """All chips wait, and nothing is under way: who waits for whom, and for what."""
    stuck = [member for member in shared.members if member.waits_for is not None]
    ended = {member.number for member in shared.members} - {member.number for member in stuck}
    edges = [f"chip {member.number} for {_awaited(shared, member)}" for member in stuck]
    if ended:
        edges.append(f"{_chips(ended)} reached the end")
    places = [f"Chip {member.number}, place {shared.chip_ids.index(member.number)} in the mesh, {_waiting(member)}"
              f"{_so_far(shared, member)}." for member in stuck]  # fmt: skip
    return Refusal(
        Status.DEADLOCK,
        f"the chips wait for each other for ever: {'; '.join(edges)}. {' '.join(places)} "
        "Nothing is under way between them: look for a signal or a copy that not every chip sends.",
    )


def _awaited(shared: Shared, member: SliceMember) -> str:
    """Who should have ended this wait, by what the other chips did."""
    flag = member.waits_for.flag if member.waits_for else 0
    at = shared.senders.get(flag, {})
    leavers = shared.own_copies.get(flag, set())
    if leavers and member.number not in leavers:
        return f"a copy of its own that it never starts ({_chips(leavers)} did)"
    if not at:
        return "a signal that no chip ever sends"
    silent = {other.number for other in shared.members} - set().union(*at.values()) - {member.number}
    return _chips(silent, "or") if silent else f"more than {_chips(at.get(member.number, set()))} sent"


def _so_far(shared: Shared, member: SliceMember) -> str:
    at = shared.senders.get(member.waits_for.flag if member.waits_for else 0, {})
    sent = [f"at chip {number} by {_chips(by)}" for number, by in sorted(at.items())]
    return f" (signalled so far {', '.join(sent)})" if sent else ""


def _chips(numbers: set[int], word: str = "and") -> str:
    *most, last = map(str, sorted(numbers)) if numbers else ("none",)
    return f"chips {', '.join(most)} {word} {last}" if most else f"chip {last}"


def _waiting(member: SliceMember) -> str:
    """What a chip waits for."""
    assert member.waits_for is not None
    machine, (flag, least, address) = member.machine, member.waits_for
    has = machine.engine.settled(flag)
    op = machine.calls[-1][0] if machine.calls else "the top level"
    return (
        f"in {op} at {machine.where(address)} waits for {machine.flag_name(flag)} to reach {least}; "
        f"it is at {has}, {least - has} short"
    )
