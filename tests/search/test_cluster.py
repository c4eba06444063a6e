"""Candidates on many nodes: what a lost one had is tried elsewhere, what has another judge is left out.

Here Ray is played by threads. ``test_nodes.py`` has real ones.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ratchet.commands import options
from ratchet.commands.node import NodeJudge, lanes_of, words
from ratchet.exam.judge.request import Request
from ratchet.exam.measure import devices
from ratchet.kernelfile.knobs import values
from ratchet.loop import log
from ratchet.loop.experiment import Idea
from ratchet.search.candidates import Bench, Candidate
from ratchet.search.cluster import RESOURCES, Cluster, connected
from ratchet.search.protocol import (
    Beside,
    Device,
    DeviceRequest,
    JudgeRequest,
    Unfit,
    decode_answer,
    decode_request,
    encode_answer,
    encode_request,
)
from ratchet.values import Launch, Samples, Verdict
from ratchet.values.status import Refusal, Status
from tests.loop.stage import CONDITIONS
from tests.search import fake_node, fakes

ASKED = JudgeRequest(
    text=fakes.KERNEL.encode(), kernel="a b/k.py", lock=b"\x00lock", conditions=CONDITIONS, chip="v5e", remember=True
)


class RayError(Exception):
    pass


class RayTaskError(RayError):
    pass


class Actor:
    """A lane of a node of ``FakeRay``."""

    def __init__(self, ray: FakeRay, node: str) -> None:
        self.ray, self.node = ray, node
        self.ask = SimpleNamespace(remote=lambda line: ray.pool.submit(self._ask, line))

    def _ask(self, line: bytes) -> bytes:
        return self.ray.behave[self.node](line)


class FakeRay:
    """As much of Ray as a driver sees; ``behave`` says what a node does with a question."""

    exceptions = SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError)

    def __init__(self, **behave: Callable[[bytes], bytes]) -> None:
        self.behave = behave
        self.announced: dict[str, str] = {}
        """Further resources, by node."""
        self.dead: set[str] = set()
        self.pool = ThreadPoolExecutor(8)

    def nodes(self) -> list[dict[str, Any]]:
        return [
            {
                "NodeID": name,
                "Alive": name not in self.dead,
                "Resources": {"CPU": 1.0} | ({self.announced[name]: 1.0} if name in self.announced else {}),
            }
            for name in self.behave
        ]

    def wait(self, refs: list[Future[bytes]], *, num_returns: int, timeout: float) -> tuple[list[Any], list[Any]]:
        done, others = wait(refs, timeout=timeout, return_when="FIRST_COMPLETED")
        return list(done), list(others)

    def get(self, ref: Future[bytes]) -> bytes:
        return ref.result()

    def kill(self, actor: Actor) -> None:
        return


@contextmanager
def cluster(ray: FakeRay, said: list[str] | None = None, measures: str = "") -> Iterator[Cluster]:
    say = (said if said is not None else []).append
    made = Cluster(ray=ray, lane=lambda node: Actor(ray, node), say=say, measures=measures)
    made.start()
    try:
        yield made
    finally:
        made.close()
        ray.pool.shutdown()


def rows(root: Path, made: Cluster) -> list[Any]:
    """Four candidates on a cluster, with their rows."""
    bench = Bench(judge=fakes.judge(root), kernel="kernel.py", lanes=None, cluster=made)
    texts = [fakes.KERNEL.replace("BQ = 64", f"BQ = {value}").encode() for value in (128, 256, 512)]
    return bench.rows([Candidate(text=text, message=f"try {number}") for number, text in enumerate(texts)])


def test_values_come_back_as_they_were() -> None:
    assert decode_request(encode_request(ASKED)) == ASKED
    measured = replace(ASKED, model_only=False, beside=Beside(text=b"\xff", test=3))
    assert decode_request(encode_request(measured)) == measured
    assert decode_request(encode_request(DeviceRequest(evaluator="tpu"))) == DeviceRequest(evaluator="tpu")
    device = Device(chip="v5e", compiler="libtpu 1")
    assert decode_answer(encode_answer(device)) == device
    verdict = fake_node.judge(ASKED)
    assert decode_answer(encode_answer(verdict)) == verdict
    assert decode_answer(encode_answer(Unfit(why="so"))) == Unfit(why="so")
    with pytest.raises(Refusal, match="full") as caught:
        decode_answer(encode_answer(Refusal(Status.NO_SPACE, "full")))
    assert caught.value.status is Status.NO_SPACE
    assert encode_request(ASKED).count(b"\n") == encode_answer(verdict).count(b"\n") == 1


def test_a_node_with_another_judge_refuses(tmp_path: Path) -> None:
    judge = NodeJudge(root=tmp_path, function=fakes.function, _seal="another")
    said = judge.answer(ASKED)
    assert isinstance(said, Unfit)
    for word in ("another", CONDITIONS.seal, "requirements.lock"):
        assert word in said.why


def test_what_a_lost_lane_had_is_tried_elsewhere_with_one_row_each(tmp_path: Path) -> None:
    stage = fakes.stage(tmp_path / "repository")
    stage.run(idea=Idea(message="baseline"), judge=fakes.judge(stage.root))
    began = threading.Event()

    def dies(_line: bytes) -> bytes:
        began.set()
        ray.dead.add("two")
        raise RayError("the node died")

    def slow(line: bytes) -> bytes:
        began.wait(60)
        return fake_node.ask(line)

    ray, said = FakeRay(one=slow, two=dies), []
    with cluster(ray, said) as made:
        found = rows(stage.root, made)
    assert [row.note for row in found] == ["try 0", "try 1", "try 2"]
    assert len(stage.rows()) == 4
    assert any("tried elsewhere" in line for line in said)
    assert log.verify(stage.root) == ()
    plain = fakes.stage(tmp_path / "plain")
    plain.run(idea=Idea(message="baseline"), judge=fakes.judge(plain.root))
    with cluster(FakeRay(one=fake_node.ask)) as made:
        alone = rows(plain.root, made)
    assert [(row.status, row.median_ms, row.decision) for row in found] == [
        (row.status, row.median_ms, row.decision) for row in alone
    ]


def test_a_node_with_another_seal_is_left_out() -> None:
    said: list[str] = []
    with cluster(FakeRay(one=lambda line: fake_node.ask(line, "other"), two=fake_node.ask), said) as made:
        answers = [made.submit(ASKED) for _ in range(6)]
        assert {one.result(60).status for one in answers} == {Status.UNCHECKED}
    assert sum("left out" in line for line in said) == 1
    with cluster(FakeRay(one=lambda line: fake_node.ask(line, "other"))) as made:
        with pytest.raises(Refusal, match="no node has this judge: its judge is other") as caught:
            made.submit(ASKED).result(60)
        assert caught.value.status is Status.SEAL_BROKEN


def test_a_judge_that_ends_under_a_candidate_is_asked_three_times() -> None:
    asked = []

    def ends(line: bytes) -> bytes:
        asked.append(line)
        raise RayTaskError("the judge of this node ended with exit code -9")

    with cluster(FakeRay(one=ends)) as made:
        with pytest.raises(Refusal, match=r"ended 3 times without a verdict: .*exit code -9") as caught:
            made.submit(ASKED).result(60)
        assert caught.value.status is Status.INFRASTRUCTURE
    assert len(asked) == 3


def test_no_node_at_all() -> None:
    ray = FakeRay(one=fake_node.ask)
    ray.dead.add("one")
    with cluster(ray) as made, pytest.raises(Refusal, match="no node of the cluster is left"):
        made.submit(ASKED).result(60)


@pytest.mark.parametrize(
    ("address", "status"),
    [
        ("127.0.0.1:1", Status.INFRASTRUCTURE),
        ("nowhere.invalid:6379", Status.INFRASTRUCTURE),
        (f"{'x' * 300}:6379", Status.INFRASTRUCTURE),
        *((address, Status.USAGE) for address in ("nonsense", "host:", ":6379", "host:port", "host:0", "host:99999")),
    ],
)
def test_where_no_head_listens_it_is_said_at_once(address: str, status: Status) -> None:
    with pytest.raises(Refusal, match=r"cannot be reached|wanted HOST:PORT") as caught, connected(address, say=print):
        pass
    assert caught.value.status is status


def test_trouble_of_a_node_is_the_drivers_to_tell() -> None:
    def full(_line: bytes) -> bytes:
        return encode_answer(Refusal(Status.NO_SPACE, "the disk of the node is full"))

    with cluster(FakeRay(one=full)) as made, pytest.raises(Refusal, match="disk of the node"):
        made.submit(ASKED).result(60)


def test_nodes_that_announce_a_device_measure_and_the_others_model() -> None:
    ray = FakeRay(plain=fake_node.ask, tpu=fake_node.ask, cpu=fake_node.ask)
    ray.announced.update(tpu=RESOURCES["tpu"], cpu=RESOURCES["cpu"])
    for measures, name in (("", "plain"), ("tpu", "tpu"), ("cpu", "cpu")):
        with cluster(ray, measures=measures) as made:
            assert (made.lanes, [lane.node for lanes in made._lanes.values() for lane in lanes]) == (1, [name])
    with cluster(FakeRay(plain=fake_node.ask), measures="tpu") as made:
        with pytest.raises(Refusal, match=r"announces a tpu to measure on: start one by .* --measures tpu") as caught:
            made.device()
        assert caught.value.status is Status.INFRASTRUCTURE


def test_a_node_says_which_device_it_has_and_refuses_another_series(tmp_path: Path) -> None:
    judge = NodeJudge(root=tmp_path, function=fakes.function, _seal=CONDITIONS.seal)
    device = judge.answer(DeviceRequest(evaluator="cpu"))
    assert isinstance(device, Device)
    assert "cores" in device.chip
    conditions = replace(CONDITIONS, evaluator="cpu", chip=device.chip, compiler=device.compiler)
    assert judge.differs(replace(ASKED, conditions=conditions)) == ""
    another = judge.answer(replace(ASKED, conditions=replace(conditions, chip="another CPU")))
    assert isinstance(another, Unfit)
    assert "this series is of another CPU" in another.why
    node = options.ratchet(["node", "10.0.0.1:6379", "--measures", "cpu", "--lanes", "8"])
    said = words(node)
    assert said[said.index("--num-cpus") + 1] == "1"
    assert json.loads(said[said.index("--resources") + 1]) == {RESOURCES["cpu"]: 1}


FASTER = fakes.KERNEL.replace("BQ = 64", "BQ = 128")
FASTEST = fakes.KERNEL.replace("BQ = 64", "BQ = 256")
SLOWER = fakes.KERNEL.replace("BKV = 64", "BKV = 512")


def timing(asked: list[JudgeRequest] | None = None, **times_faster: float) -> FakeRay:
    """Nodes that measure, and how many times faster each says that a candidate is."""

    def node(lie: float) -> Callable[[bytes], bytes]:
        def says(line: bytes) -> bytes:
            request = decode_request(line)
            if asked is not None and isinstance(request, JudgeRequest):
                asked.append(request)
            return encode_answer(fakes.answer(request, times_faster=lie))

        return says

    ray = FakeRay(plain=fake_node.ask, **{name: node(lie) for name, lie in times_faster.items()})
    ray.announced.update(dict.fromkeys(times_faster, RESOURCES["cpu"]))
    return ray


def test_measured_candidates_are_timed_beside_the_kernel_that_head_has(tmp_path: Path) -> None:
    """Two are faster than the first; once the faster one is kept, the other is timed again beside it, and loses."""
    stage, asked = fakes.stage(tmp_path / "repository"), list[JudgeRequest]()
    with cluster(timing(asked, one=1.0, two=1.0), measures="cpu") as made:
        rows = fakes.timed_rows(stage.root, made, FASTER, FASTEST, SLOWER)
    assert [(row.evaluator, row.chip, row.decision) for row in rows] == [
        ("cpu", "a device", "baseline"),
        ("cpu", "a device", "reverted"),
        ("cpu", "a device", "kept"),
        ("cpu", "a device", "reverted"),
    ]
    start, best = (fakes.latency(values(text.encode(), "kernel.py")) for text in (fakes.KERNEL, FASTEST))
    beside = [one.beside and fakes.latency(values(one.beside.text, "kernel.py")) for one in asked]
    assert beside == [None, start, start, start, start, best], "the one that is kept was timed twice"
    assert all("measured side by side" in row.reason for row in rows[1:])
    assert [row.kernel_blob for row in stage.rows()].count(rows[1].kernel_blob) == 1
    assert log.verify(stage.root) == ()


@pytest.mark.parametrize("lies", [("one",), ("two",), ("one", "two")])
def test_what_one_node_calls_faster_is_kept_only_if_another_says_so(tmp_path: Path, lies: tuple[str, ...]) -> None:
    stage = fakes.stage(tmp_path / "repository")
    lying = {name: 10.0 if name in lies else 1.0 for name in ("one", "two")}
    with cluster(timing(**lying), measures="cpu") as made:
        _, row = fakes.timed_rows(stage.root, made, SLOWER)
    kept = len(lies) == 2  # who has all nodes has the answer
    assert (row.decision, row.status) == (("kept", "PASS") if kept else ("reverted", "NOT_BETTER"))


def test_what_nobody_could_check_again_is_said_and_not_kept_and_tried_again_later(tmp_path: Path) -> None:
    stage = fakes.stage(tmp_path / "repository")
    with cluster(timing(one=1.0), measures="cpu") as made:
        _, row = fakes.timed_rows(stage.root, made, FASTER)
    assert (row.decision, row.status, stage.read()) == ("reverted", "UNCHECKED", fakes.KERNEL)
    assert "node one alone timed it as faster, and it was not checked again" in row.reason
    assert "node --measures cpu" in row.reason
    with cluster(timing(one=1.0, two=1.0), measures="cpu") as made:
        *_, row = fakes.timed_rows(stage.root, made, FASTER)
    assert (row.decision, stage.read()) == ("kept", FASTER)


def test_this_machines_own_device_checks_before_another_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = fakes.stage(tmp_path / "repository")
    monkeypatch.setattr(devices, "device", lambda _evaluator: fakes.DEVICE.chip)
    monkeypatch.setattr(devices, "compiler", lambda _evaluator: fakes.DEVICE.compiler)
    here = list[str]()

    def function(request: Request, **_others: Any) -> Verdict:
        assert request.against
        here.append(request.kernel.read_text())
        return fakes.made(request, Status.WRONG_VALUES, "here")

    monkeypatch.setattr(fakes, "function", function)
    monkeypatch.setattr(fakes.judge, "__defaults__", (function,))
    with cluster(timing(one=1.0, two=1.0), measures="cpu") as made:
        _, row = fakes.timed_rows(stage.root, made, FASTER)
    assert (here, row.status, row.decision) == ([FASTER], "WRONG_VALUES", "reverted")


def forged(**changes: Any) -> bytes:
    return encode_answer(replace(fakes.measured(TIMED), **changes))


TIMED = replace(
    ASKED,
    conditions=replace(CONDITIONS, evaluator="cpu"),
    model_only=False,
    beside=Beside(text=fakes.KERNEL.encode(), test=1),
)
LAUNCH = Launch(candidate_ms=(1.0,), incumbent_ms=(2.0,))
SAMPLES = Samples(evaluator="cpu", device="", launches=(LAUNCH,), seconds=1.0)


@pytest.mark.parametrize(
    "said",
    [
        *(b"", b"nonsense\n", b"[" * 100_000, b"{}\n", b'["Verdict"]\n', b"null\n", b"\xff\n"),
        *(b'{"refused": ["PASS", "kept"]}\n', b'{"refused": ["ROOT", ""]}\n', b'{"refused": 7}\n'),
        encode_answer(fakes.DEVICE),
        forged(samples=None),
        forged(kernel="another.py"),
        forged(reason="x" * 100_000),
        *(forged(conditions=replace(TIMED.conditions, **{one: "x"})) for one in ("chip", "seal", "problem")),
        forged(samples=replace(SAMPLES, launches=())),
        *(
            forged(samples=replace(SAMPLES, launches=(replace(LAUNCH, candidate_ms=times),)))
            for times in ((), (0.0,), (-1.0,), (float("nan"),), (float("inf"),))
        ),
        forged(samples=replace(SAMPLES, launches=(replace(LAUNCH, incumbent_ms=()),))),
        forged(samples=replace(SAMPLES, launches=(LAUNCH,) * 10_001)),
    ],
)
def test_what_is_no_answer_is_none(said: bytes) -> None:
    with cluster(timing(one=1.0), measures="cpu") as made:
        made.ray.behave["one"] = lambda _line: said
        with pytest.raises(Refusal, match="ended 3 times without a verdict"):
            made.time(TIMED).result(60)


def test_what_a_node_says_of_its_timings_counts_for_nothing(tmp_path: Path) -> None:
    stage = fakes.stage(tmp_path / "repository")

    def lies(line: bytes) -> bytes:
        said = fakes.answer(decode_request(line))
        if isinstance(said, Verdict) and said.paired:
            said = replace(said, paired=replace(said.paired, answer="faster", speedup=9.0))
        return encode_answer(said)

    with cluster(timing(one=1.0, two=1.0), measures="cpu") as made:
        made.ray.behave.update(one=lies, two=lies)
        _, row = fakes.timed_rows(stage.root, made, SLOWER)
    assert (row.decision, row.status) == ("reverted", "NOT_BETTER")


def test_values_that_a_node_refuses_are_not_checked_here_again(tmp_path: Path) -> None:
    """BQ 512 is modelled as fast and computes something else. The fastest is judged here, and after it what is left."""
    stage = fakes.stage(tmp_path / "repository")
    judged: list[bytes] = []

    def function(request: Request, **others: Any) -> Verdict:
        judged.append(request.kernel.read_bytes())
        return fakes.function(request, **others)

    judge = fakes.judge(stage.root, function)
    stage.run(idea=Idea(message="baseline"), judge=judge)
    texts = [
        fakes.KERNEL.replace("BQ = 64", f"BQ = {bq}").replace("BKV = 64", "BKV = 128").encode()
        for bq in (512, 512, 128)
    ]
    texts[1] = texts[1].replace(b"SKIP = False", b"SKIP = True")
    judged.clear()
    with cluster(FakeRay(one=fake_node.ask, two=fake_node.ask)) as made:
        bench = Bench(judge=judge, kernel="kernel.py", lanes=None, cluster=made)
        found = bench.rows([Candidate(text=text, message=f"try {n}") for n, text in enumerate(texts)])
    assert [(row.status, row.decision) for row in found] == [
        ("WRONG_VALUES", "reverted"),
        ("WRONG_VALUES", "reverted"),
        ("PASS", "kept"),
    ]
    assert judged == [texts[1], texts[2]]
    assert log.verify(stage.root) == ()


def test_a_head_listens_on_this_machine_alone_unless_asked() -> None:
    head = words(options.ratchet(["node", "--lanes", "2"]))
    assert head[head.index("--node-ip-address") + 1] == "127.0.0.1"
    assert "--head" in head
    assert head[head.index("--include-dashboard") + 1] == "false"
    assert "--disable-usage-stats" in head
    joins = words(options.ratchet(["node", "10.0.0.1:6379", "--listen", "10.0.0.2"]))
    assert joins[joins.index("--address") + 1] == "10.0.0.1:6379"
    assert "--head" not in joins
    assert [lanes_of(64, gib << 30) for gib in (4, 24, 1024)] == [1, 4, 64]
