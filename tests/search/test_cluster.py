"""Candidates on many nodes: what a lost one had is tried elsewhere, what has another judge is left out.

Here Ray is played by threads. ``test_nodes.py`` has real ones.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ratchet.commands import options
from ratchet.commands.node import NodeJudge, lanes_of, words
from ratchet.exam.judge.request import Request
from ratchet.kernelfile.knobs import values
from ratchet.loop import log
from ratchet.loop.experiment import Idea
from ratchet.search.candidates import Bench, Candidate, baseline
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
from ratchet.values import Verdict
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
    bench = Bench(judge=fakes.judge(root), kernel="kernel.py", lanes=None, cluster=made, say=lambda _line: None)
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


def test_measured_candidates_are_timed_beside_the_kernel_that_head_has(tmp_path: Path) -> None:
    """Two are faster than the first; once the faster one is kept, the other is timed again beside it, and loses."""
    stage = fakes.stage(tmp_path / "repository")
    stage.lock.write_text("a problem")
    stage.git("add", ".")
    stage.git("commit", "-qm", "the problem")
    device, beside = Device(chip="a device", compiler="its compiler"), []

    def measures(line: bytes) -> bytes:
        asked = decode_request(line)
        if isinstance(asked, DeviceRequest):
            return encode_answer(device)
        beside.append(asked.beside and fakes.latency(values(asked.beside.text, "kernel.py")))
        return encode_answer(fakes.measured(asked))

    ray = FakeRay(plain=fake_node.ask, timed=measures)
    ray.announced["timed"] = RESOURCES["cpu"]
    with cluster(ray, measures="cpu") as made:
        here = replace(fakes.judge(stage.root), evaluator="cpu")
        judge = fakes.FixedRemote(
            **{one.name: getattr(here, one.name) for one in fields(here)}, cluster=made, device=made.device()
        )
        first = baseline(judge, Path("kernel.py"), wait_s=0, say=lambda _line: None)
        bench = Bench(judge=judge, kernel="kernel.py", lanes=None, cluster=made, say=lambda _line: None)
        texts = [fakes.KERNEL.replace("BQ = 64", f"BQ = {value}").encode() for value in (128, 256)]
        slower = fakes.KERNEL.replace("BKV = 64", "BKV = 512").encode()
        candidates = [Candidate(text=text, message="try") for text in (*texts, slower)]
        made_rows = bench.rows(candidates)
    assert [(row.evaluator, row.chip, row.decision) for row in (first, *made_rows)] == [
        ("cpu", "a device", "baseline"),
        ("cpu", "a device", "reverted"),
        ("cpu", "a device", "kept"),
        ("cpu", "a device", "reverted"),
    ]
    start, best = (fakes.latency(values(text, "kernel.py")) for text in (fakes.KERNEL.encode(), texts[1]))
    assert beside == [None, start, start, start, best]
    assert all("measured side by side" in row.reason for row in made_rows)
    assert [row.kernel_blob for row in stage.rows()].count(made_rows[0].kernel_blob) == 1
    assert log.verify(stage.root) == ()


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
        bench = Bench(judge=judge, kernel="kernel.py", lanes=None, cluster=made, say=lambda _line: None)
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
