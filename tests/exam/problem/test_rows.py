"""Rows that are compared in float64, and those that are only where they stand out."""

import dataclasses
import itertools
import json
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ratchet.exam.judge import correctness
from ratchet.exam.judge.correctness import Examiner
from ratchet.exam.judge.requests import CheckOutputs
from ratchet.exam.judge.responses import answer_in
from ratchet.exam.judge.values_worker import Values
from ratchet.exam.problem import blocks, freezing, instances, parity, promote, rows
from ratchet.exam.problem.input_regions import edges
from ratchet.exam.problem.inputs import Inputs, Instance
from ratchet.exam.problem.problem import Rows
from ratchet.exam.problem.programs import Programs
from ratchet.exam.problem.reference import Reference, References
from ratchet.values import control
from ratchet.values.control import ControlFlow
from ratchet.values.status import Status
from tests.exam.judge.programs import examined
from tests.kernels import CANDIDATES, edited

SOFTMAX = edited(
    (CANDIDATES / "honest" / "column_softmax.py").read_text(), ("N, D, B = 512, 256, 128", "N, D, B = 256, 2048, 256")
)
"""Its rows lie along the second axis of the output."""
COUNT, SECRET = 2048, b"s" * 32


@pytest.fixture(scope="module")
def in_rows():
    """The problem and its honest program, its reference evaluated some rows at a time as a large one is."""
    with pytest.MonkeyPatch.context() as patch:
        cut = blocks.in_blocks
        for module in (blocks, promote):
            patch.setattr(module, "in_blocks", lambda closed: cut(closed, 1 << 17))
        artefact, problem = examined(SOFTMAX)
    assert problem.rows == Rows(block=512, axes=(1,))
    return artefact.program, problem


@pytest.fixture
def random(in_rows, tmp_path):
    return Instance(problem=in_rows[1], kind="random", secret=SECRET, cache=tmp_path)


def references_of():
    return References(Inputs(Programs()))


def share_of(kind):
    return rows.OWN_SHARE if instances.is_own(kind) else rows.SHARE


@given(st.integers(rows.FEWEST, 1 << 15), st.integers(0, 1 << 32))
@settings(max_examples=30, deadline=None)
def test_every_region_has_its_ends_and_others_that_nobody_knows_among_the_rows(length, seed):
    found = rows.sampled(length, np.random.default_rng(seed))
    assert found.dtype == np.int32
    assert (np.diff(found) > 0).all()
    for a, b in itertools.pairwise(edges(length)):
        here = found[(found >= a) & (found < b)]
        assert (here[0], here[-1]) == (a, b - 1)
        assert len(here) >= max(min(b - a, rows.LEAST), (b - a) // rows.SHARE)
    assert found.tolist() != rows.sampled(length, np.random.default_rng(seed + 1)).tolist()
    more = rows.sampled(length, np.random.default_rng(seed), rows.OWN_SHARE)
    assert np.isin(found, more).all()
    assert len(more) >= length / rows.OWN_SHARE


def test_of_few_rows_and_where_none_is_alone_all_are_compared(in_rows):
    problem = in_rows[1]
    assert rows.are_sampled(problem)
    assert not rows.are_sampled(dataclasses.replace(problem, rows=None))
    spec = dataclasses.replace(problem.outputs[0], shape=(256, 1024))
    assert not rows.are_sampled(dataclasses.replace(problem, outputs=(spec,)))


def test_some_rows_are_those_of_all(random):
    references, whole = references_of(), dataclasses.replace(random, whole=True)
    for kind in instances.kinds_of(random.problem):
        some, every = references.of(random.of_kind(kind)), references.of(whole.of_kind(kind))
        assert every.numbers is None
        assert COUNT / share_of(kind) <= some.numbers.size < COUNT / 2
        # Losses are fitted to what is compared: they are alike, not the same.
        np.testing.assert_allclose(some.exact[0], every.exact[0][:, some.numbers], rtol=1e-6, atol=1e-30)
        np.testing.assert_allclose(some.losses[0], every.losses[0][:, some.numbers], rtol=2e-1, atol=1e-30)
    again = references_of()
    again.made = None  # all are in their files
    for instance in (random, whole):
        for kind in instances.kinds_of(random.problem):
            one, other = again.of(instance.of_kind(kind)), references.of(instance.of_kind(kind))
            pairs = zip(*([*x.exact, *x.losses, *x.native] for x in (one, other)), strict=True)
            for a, b in pairs:
                assert (a.dtype, a.tobytes()) == (b.dtype, b.tobytes())


def test_what_is_known_of_a_probe_is_known_of_the_random_inputs(random):
    references = references_of()
    known, probe = references.of(random), references.of(random.of_kind("probe"))
    assert np.isin(probe.numbers, known.numbers).all()
    (exact,) = known.exact_of(random.problem, probe.numbers)
    places = [known.numbers.tolist().index(number) for number in probe.numbers]
    assert exact.tobytes() == np.take(known.exact[0], places, 1).tobytes()
    assert not np.array_equal(references.of(random.of_kind("mixed")).numbers, probe.numbers)


def test_other_rows_are_computed_once(random, monkeypatch):
    references, instance = references_of(), random.of_kind("mixed")
    native, every = references.of(instance).native, references.of(dataclasses.replace(instance, whole=True))
    first = references.more(instance, np.array([3, 700]), native)
    asked = []
    made = references.made
    monkeypatch.setattr(
        references, "made", lambda one, numbers, native: asked.append(numbers) or made(one, numbers, native)
    )
    second = references.more(instance, np.array([3, 500, 700, 701]), native)
    assert [numbers.tolist() for numbers in asked] == [[500, 701]]
    assert second.exact[0].shape == (256, 4)
    assert second.exact[0][:, [0, 2]].tobytes() == first.exact[0].tobytes()
    np.testing.assert_allclose(second.exact[0], every.exact[0][:, [3, 500, 700, 701]], rtol=1e-6, atol=1e-30)


def test_an_honest_kernel_passes_with_some_of_the_rows_and_with_all(in_rows, random):
    program, _ = in_rows
    for whole in (False, True):
        values = Values()
        for kind in instances.kinds_of(random.problem):
            answer = values.check(dataclasses.replace(random, kind=kind, whole=whole), program=program)
            assert answer["status"] == Status.PASS.name, answer
            assert (answer.get("of_rows", 0), "rows" in answer) == (COUNT * (not whole), not whole)


def test_an_answer_says_of_how_many_rows_it_is(tmp_path):
    """It comes from a process that executes a candidate's program, so each field of it has to be known."""
    file = tmp_path / "answer.json"
    file.write_text(json.dumps({"status": "PASS", "message": "", "rows": 300, "of_rows": COUNT}))
    answer = answer_in(file)
    assert (answer["rows"], answer["of_rows"]) == (300, COUNT)
    assert f"300 of {COUNT} rows in float64" in correctness._left_out(answer)


SPARSE = {
    "a few rows of which are not zero": (lambda x: jnp.where(jnp.arange(COUNT)[:, None] == 77, x, 0.0), Status.PASS),
    "all rows of which are next to nothing": (lambda x: x * 0.0, Status.WEAK_PROBLEM),
}


@pytest.mark.parametrize("name", SPARSE)
def test_of_a_problem_whose_known_rows_are_zero_the_others_are_looked_at(name, random):
    """No row but those that a constant is wrong in says whether it would pass."""
    reference, status = SPARSE[name]
    problem = random.problem
    shape = problem.outputs[0].shape[::-1]
    values = Values()
    known = rows.sampled(COUNT, np.random.default_rng(0))
    assert 77 not in known
    native = np.asarray(reference(jnp.ones(shape)), jnp.bfloat16).T
    exact = native.astype(np.float32)

    def of(numbers):
        picked = np.take(exact, numbers, 1)
        losses, counts = [picked * 1e-6], [np.zeros(0, np.uint32)]
        return Reference(exact=[picked], losses=losses, counts=counts, numbers=numbers, native=[native])

    values.comparer.references.of = lambda _: of(known)
    values.comparer.references.more = lambda _instance, numbers, _native: of(numbers)
    assert values.comparer.problem(random)["status"] == status.name


class Asked:
    """In the place of ``Asking``: what is asked of the child, which passes all."""

    def __init__(self):
        self.wholes = set()

    def has_reference(self, problem, kind, *, whole):
        del problem, kind
        self.wholes.add(whole)
        return False

    def ask(self, problem, request):
        del problem
        if not getattr(request, "order", 0):  # another order is compared with the first, bit by bit
            self.wholes.add(request.whole)
        numbers = dict.fromkeys(("worst", "rms", "floor_rms", "seconds"), 0.0)
        known = {"modules": [], "is_steered": False, "code_sha256": "", "control": control.encode(ControlFlow())}
        return {"status": Status.PASS.name, "message": "", **numbers, **known}


@pytest.mark.parametrize("deep", [False, True])
def test_deep_asks_for_all_rows(deep, in_rows, tmp_path):
    exam = Examiner(workers=SimpleNamespace(folder=tmp_path.joinpath), root=tmp_path)
    exam._asking = asked = Asked()
    exam.check(in_rows[1], examined(SOFTMAX)[0], deep=deep)
    assert asked.wholes == {deep}


def answered(instance, outputs, folder):
    """What the values child says of outputs that a device computed."""
    folder.mkdir(exist_ok=True)
    np.ascontiguousarray(outputs).view(np.uint8).tofile(folder / "output0.bin")
    return Values().check_outputs(instance, CheckOutputs(kind=instance.kind, folder=folder, whole=instance.whole))


def row_beside(known, generator):
    return int(generator.choice(np.setdiff1d(np.arange(COUNT), known)))


WRONG = {
    "not a number": (lambda row: np.full_like(row, np.nan), Status.NOT_FINITE),
    "of another row": (lambda row: np.roll(row, 1), Status.WRONG_VALUES),
    "an eighth off": (lambda row: (row * 1.125).astype(row.dtype), Status.WRONG_VALUES),
    "nothing": (np.zeros_like, Status.WRONG_VALUES),
}


@pytest.mark.parametrize("name", WRONG)
def test_one_wrong_row_that_is_not_known_in_float64_is_found(name, random, tmp_path):
    """On the spiked inputs, where a row is hundreds of roundings apart from any other."""
    change, status = WRONG[name]
    instance, generator = random.of_kind("probe"), np.random.default_rng(0)
    reference = references_of().of(instance)
    native = reference.native[0]
    assert answered(instance, native, tmp_path / "device")["status"] == Status.PASS.name
    for _ in range(3):
        row, wrong = row_beside(reference.numbers, generator), np.array(native)
        wrong[:, row] = change(wrong[:, row])
        answer = answered(instance, wrong, tmp_path / "device")
        assert answer["status"] == status.name, answer
        assert f", {row}]" in answer["message"], "in the numbers of the whole output"


@pytest.mark.parametrize(
    "edit", [("jnp.max(v, axis=0, keepdims=True)", "0.0"), ("jnp.max(v,", "jnp.max(v[:-1],")], ids=["no", "a wrong"]
)
def test_a_kernel_that_is_wrong_where_values_are_large_is_found(edit, random):
    program = examined(edited(SOFTMAX, edit))[0].program
    values, found = Values(), []
    for kind in instances.kinds_of(random.problem):
        answer = values.check(random.of_kind(kind), program=program)
        found.append(answer["status"] if answer["status"] != Status.INSENSITIVE.name else "")
    assert found[0] == Status.PASS.name, "on the problem's own inputs it is right"
    assert {Status.NOT_FINITE.name, Status.WRONG_VALUES.name} & set(found[1:])


def known(*, count=512, columns=16, dtype=np.float32, loss=1e-3):
    generator = np.random.default_rng(1)
    native = generator.normal(size=(count, columns)).astype(dtype)
    numbers = np.arange(0, count, 8)
    exact = native[numbers].astype(np.float64)
    losses = np.full(exact.shape, loss)
    return rows.Known(rows=numbers, axis=0, exact=exact, loss=losses, native=native)


def test_what_is_off_by_no_more_than_rows_beside_it_may_be_does_not_stand_out():
    one = known()
    noise = np.random.default_rng(2).normal(size=one.native.shape) * 1e-3
    assert not rows.standing_out((one.native + noise).astype(np.float32), one).size


def test_a_row_stands_out_by_one_element_or_as_a_whole_or_where_it_is_not_finite():
    one = known()
    infinite = np.where(np.arange(16) == 3, np.inf, 0)
    for row, change in ((9, np.eye(16)[3] * 0.05), (100, np.full(16, 1e-2)), (511, infinite)):
        wrong = np.array(one.native)
        wrong[row] += change.astype(np.float32)
        assert rows.standing_out(wrong, one).tolist() == [row]
    wrong[8] += 1  # a row that is known is compared in any case
    assert rows.standing_out(wrong, one).tolist() == [511]


def test_where_the_reference_overflows_nothing_stands_out():
    one = known()
    native = np.array(one.native)
    native[9] = np.inf
    assert not rows.standing_out(one.native, dataclasses.replace(one, native=native)).size


def test_where_nothing_is_asked_of_any_row_all_are_looked_at():
    one = known(loss=np.inf)
    assert rows.standing_out(one.native, one).size == one.native.shape[0] - one.rows.size


def test_of_rows_of_which_nothing_is_asked_those_beside_count():
    one = known()
    loss = np.array(one.loss)
    loss[10:30] = np.inf
    wrong = np.array(one.native)
    wrong[8 * 20 + 1] += 1
    assert rows.standing_out(wrong, dataclasses.replace(one, loss=loss)).tolist() == [161]


def test_rows_that_are_zero_say_nothing_of_those_beside_them():
    one = known()
    exact = np.array(one.exact)
    exact[10:30] = 0.0
    native = np.array(one.native)
    native[80:240] = 0.0
    wrong = np.array(native)
    wrong[8 * 30 + 1, 5] += 1
    one = dataclasses.replace(one, exact=exact, native=native)
    assert rows.standing_out(wrong, one).tolist() == [241]
    assert not rows.standing_out(native, one).size


def test_another_integer_stands_out():
    one = known(dtype=np.int32, loss=0.0)
    wrong = np.array(one.native)
    wrong[77, 2] += 1
    assert rows.standing_out(wrong, one).tolist() == [77]


def test_rows_that_were_picked_are_asked_alone():
    """Rows that are all off by the same much of what they may be are no common factor of an output."""
    exact = np.random.default_rng(0).normal(size=(64, 128))
    loss = np.full(exact.shape, 1e-3)
    got = (exact * (1 + 2e-3)).astype(np.float32)
    part = parity.Part(axis=0, rows=np.arange(64) * 3)
    assert parity.compare(got, exact, loss, part=part).status is Status.WRONG_VALUES
    assert parity.compare(got, exact, loss, part=dataclasses.replace(part, picked=True)).status is Status.PASS


def test_a_worker_freezes_rows_where_a_reference_is_large():
    def frozen(shape):
        with jax.enable_x64(True):
            return freezing.exact_program(lambda x: jnp.cumsum(x, 1), [jax.ShapeDtypeStruct(shape, jnp.float32)])[0]

    assert frozen((8, 128)) is None
    assert frozen((8192, 1024)) == {"block": 4096, "axes": [0]}
