"""Whether a modelled run is one like any other: the inputs that steer it are public, and a kernel may know them. Pure.

Latency is modelled on one public draw of the problem's inputs, the same for every kernel. Other draws follow from the
problem and from the program itself, so no program can hold them. A kernel that treats the public draw as it treats the
others is, on every count, sooner or later met by one of them; one that knows it never is.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ratchet.candidate.problem import Problem, encode
from ratchet.judge.control import of_chips
from ratchet.values import Timeline
from ratchet.values.status import Refusal, Status
from ratchet.values.tokens import TokenTable

BATCHES = (1, 3, 8, 16, 32)
"""How many draws are modelled before it is asked again whether one is like the public one: nearly always the first."""
FASTER = 0.02
"""By how much a run may be faster than on all other draws."""
SEED_BYTES = 8


@dataclass(frozen=True, kw_only=True)
class Unlike:
    """What happens with the public inputs and with none of the other draws."""

    what: str
    """``branch``, ``other branch``, ``loop``, ``copy``: executed on one side only; ``cycles``: fewer than ever else."""
    place: str
    public: int
    others: tuple[int, ...]


def seeds(problem: Problem, code_sha256: str) -> Iterator[list[bytes]]:
    """Keys of the draws for one program, batch by batch; the same in every clone.

    The digest is that of the program without names and places of its author's: a comment changes nothing.
    """
    key = hashlib.sha256(encode(problem)).digest() + bytes.fromhex(code_sha256)
    numbers = itertools.count()
    for size in BATCHES:
        yield [hashlib.sha256(key + next(numbers).to_bytes(4, "big")).digest()[:SEED_BYTES] for _ in range(size)]


def unlike(public: Timeline, others: Sequence[Timeline]) -> list[Unlike]:
    """What of the public run no other draw has shown so far."""
    runs = [_counts(run) for run in (public, *others)]
    places = sorted(set().union(*runs))
    found = []
    for what, place in places:
        first, *rest = (run.get((what, place), 0) for run in runs)
        if all((count > 0) != (first > 0) for count in rest):
            found.append(Unlike(what=what, place=place, public=first, others=tuple(rest)))
    cycles = [run.cycles for run in others]
    if public.cycles < (1 - FASTER) * min(cycles):
        found.append(Unlike(what="cycles", place="", public=public.cycles, others=tuple(cycles)))
    return found


def refuse(found: Sequence[Unlike], tokens: TokenTable) -> Refusal:
    """A kernel that no draw was like."""
    one = found[0]
    count = len(one.others)
    if one.what == "cycles":
        what = f"it takes {one.public:,} cycles with the public inputs, and {min(one.others):,} or more"
    else:
        times = f"{one.public} times" if one.public else "never"
        most = f"{min(one.others)} to {max(one.others)} times" if not one.public else "never"
        what = f"the {one.what} at {tokens.explain(one.place)} is executed {times} with the public inputs, and {most}"
    return Refusal(
        Status.CONTROL_FLOW_DIFFERS,
        f"{what} with {count} other draws of what steers it: it seems to know the inputs that latency is modelled on; "
        "wanted a kernel that does with them what it does with any (or, if they are odd by chance, other inputs in a "
        "new problem)",
    )


def _counts(run: Timeline) -> dict[tuple[str, str], int]:
    """How often each place was executed."""
    flow = of_chips(run)
    if flow is None:
        return {}
    counts = {("branch", place): then for place, (then, _) in flow.branches.items()}
    counts |= {("other branch", place): otherwise for place, (_, otherwise) in flow.branches.items()}
    counts |= {("loop", place): turns for place, turns in flow.loops.items()}
    return counts | {("copy", place): starts for place, starts in flow.copies.items()}
