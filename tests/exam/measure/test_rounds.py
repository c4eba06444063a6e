"""The timing loop against programs that cheat the clock, by their numbers in the list of known cheats.

An exported program has no Python and no memory between calls, so most of these cannot even be written as a kernel
file; the loop does not rely on that. Here a program is any callable.
"""

import itertools

import numpy as np

from ratchet.exam.measure.rounds import MAX_ROUNDS, MIN_ROUNDS, Timed, check_clocks, digest, time_rounds, warm_up
from ratchet.values.status import Status
from tests.refusals import refused

SETS = [[np.arange(4.0) + offset] for offset in range(3)]


def honest(arrays):
    return [arrays[0] * 2]


class Clock:
    """Nanoseconds that pass only where a program says so."""

    def __init__(self):
        self.now = 0

    def __call__(self):
        return self.now


def timed(call, *, seconds=0.0, sets=SETS, wait=lambda outputs: None, **options):
    program = Timed(name="candidate", call=call)
    warm_up(program, sets, wait)
    time_rounds([program], sets, wait=wait, seconds=seconds, **options)
    return program


def refusal_of(status, call, **options):
    with refused(status) as caught:
        timed(call, **options)
    assert "\n" not in caught.value.message
    return caught.value.message


def test_an_honest_program_is_timed_at_least_thirty_times():
    clock = Clock()

    def call(arrays):
        clock.now += 1_000_000
        return honest(arrays)

    assert timed(call, clock=clock).wall_ns == [1_000_000] * MIN_ROUNDS
    assert len(timed(call, clock=clock, seconds=0.1).wall_ns) == 100
    assert len(timed(call, clock=clock, seconds=1e9).wall_ns) == MAX_ROUNDS


def test_two_programs_get_the_same_inputs_in_both_orders():
    seen = []

    def named(name):
        def call(arrays):
            seen.append((name, float(arrays[0][0])))
            return honest(arrays)

        return Timed(name=name, call=call)

    programs = [named("one"), named("other")]
    for program in programs:
        warm_up(program, SETS, lambda outputs: None)
    seen.clear()
    rounds = time_rounds(programs, SETS, wait=lambda outputs: None, seconds=0)
    pairs = list(zip(seen[::2], seen[1::2], strict=True))[:rounds]
    assert {tuple(name for name, _ in pair) for pair in pairs} == {("one", "other"), ("other", "one")}
    assert all(a[1] == b[1] for a, b in pairs), "both programs of a turn get the same inputs"
    assert all(a[0][1] != b[0][1] for a, b in itertools.pairwise(pairs)), "and the next turn gets others"


def test_cheat_1_a_cached_output():
    cache = {}

    def call(arrays):
        return cache.setdefault("out", honest(arrays))

    program = Timed(name="candidate", call=call)
    outputs = warm_up(program, SETS, lambda outputs: None)
    # The same answer for every set: repeatable, so it is the check against the references that catches it.
    assert len(set(program.digests)) == 1
    assert not np.array_equal(outputs[1][0], honest(SETS[1])[0])


def test_cheat_1_a_cache_that_is_filled_while_timing():
    calls, cache = itertools.count(), {}

    def call(arrays):
        return cache.setdefault("out", honest(arrays)) if next(calls) >= 2 * len(SETS) else honest(arrays)

    assert "timed call" in refusal_of(Status.NON_DETERMINISTIC, call)


def test_cheat_2_most_calls_are_skipped():
    calls, last = itertools.count(), []

    def call(arrays):
        if next(calls) % 4 == 0 or not last:
            last[:] = [honest(arrays)]
        return last[0]

    refusal_of(Status.NON_DETERMINISTIC, call)


def test_cheat_3_right_for_the_first_calls():
    calls = itertools.count()
    refusal_of(Status.NON_DETERMINISTIC, lambda arrays: honest(arrays) if next(calls) < 10 else [arrays[0] * 0])
    calls = itertools.count()
    last = 2 * len(SETS) + MIN_ROUNDS
    message = refusal_of(
        Status.NON_DETERMINISTIC, lambda arrays: honest(arrays) if next(calls) < last else [arrays[0] * 0]
    )
    assert "after timing" in message


def test_cheat_7_something_lazy():
    class Lazy:
        shape, dtype = (4,), np.dtype(np.float64)

    assert "wanted a concrete array" in refusal_of(Status.WRONG_SHAPE, lambda arrays: [Lazy()])


def test_cheat_8_work_that_goes_on_after_the_call_is_on_the_clock():
    clock = Clock()

    def wait(outputs):
        clock.now += 5_000_000

    assert timed(honest, clock=clock, wait=wait).wall_ns == [5_000_000] * MIN_ROUNDS


def test_cheat_8_a_call_shorter_than_its_own_work():
    check_clocks([100, 100], [90, 100])
    check_clocks([100, 100], [])
    with refused(Status.INVALID):
        check_clocks([100, 80], [90, 90])
    with refused(Status.INVALID, "2 calls were timed, the device's profile shows 1 runs"):
        check_clocks([100, 80], [90])


def test_cheat_13_a_stale_buffer():
    """It leaves its output unwritten, in a buffer that still holds an answer: before each call that is filled."""
    buffer, calls = np.zeros(4), itertools.count()

    def call(arrays):
        if next(calls) < 2 * len(SETS):
            buffer[:] = honest(arrays)[0]
        return [buffer.copy()]

    program = Timed(name="candidate", call=call)
    warm_up(program, SETS[:1], lambda outputs: None)
    with refused(Status.NON_DETERMINISTIC):
        time_rounds([program], SETS[:1], wait=lambda outputs: None, seconds=0, before=lambda: buffer.fill(np.nan))


def test_inputs_that_change_are_refused():
    sets = [[np.arange(4.0)]]

    def call(arrays):
        outputs = [np.arange(4.0)]
        arrays[0][0] += 1
        return outputs

    refusal_of(Status.INPUTS_CHANGED, call, sets=sets)


def test_a_digest_tells_shapes_dtypes_and_bits_apart():
    zero = np.zeros(4, np.float32)
    others = [zero.reshape(2, 2), zero.astype(np.int32), -zero, np.zeros(0, np.float32)]
    assert len({digest([one]) for one in (zero, *others)}) == 5
    assert digest([zero]) == digest([zero.copy()])
