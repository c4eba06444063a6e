"""Candidates judged on many machines, through Ray: bytes go out, verdicts come back. The only importer of Ray.

A node that announces a device has one lane, which measures; any other has as many as it has CPUs for Ray, which model.
A run asks one of the two kinds and never the other. Each lane is a judge of its own. One thread here hands out what
waits, in the order in which it was asked. What a lost lane had is asked again elsewhere; a node whose judge or device
is another one is left out. The driver alone writes rows, so each trial has one, however often it was asked for.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from ratchet.process import key
from ratchet.process.boot.home import PROGRAM
from ratchet.search.protocol import (
    Device,
    DeviceRequest,
    JudgeRequest,
    Timed,
    Unfit,
    check_answer,
    decode_answer,
    encode_request,
)
from ratchet.values import Verdict
from ratchet.values.status import Refusal, Status


class Lane:
    """The judge is started once, and again where it ended. It speaks one line of JSON for each that it reads."""

    def __init__(self, command: list[str] | None = None) -> None:
        self._command = command or json.loads(os.environ["RATCHET_NODE"])
        self._judge: subprocess.Popen[bytes] | None = None

    def ask(self, question: bytes) -> bytes:
        """The judge's answer.

        Raises:
          RuntimeError: it ended without one.
        """
        if self._judge is None or self._judge.poll() is not None:
            self._judge = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._judge.stdin is not None
        assert self._judge.stdout is not None
        try:
            self._judge.stdin.write(question)
            self._judge.stdin.flush()
            line = self._judge.stdout.readline()
        except OSError:
            line = b""
        if not line.endswith(b"\n"):
            self._judge.kill()
            raise RuntimeError(f"the judge of this node ended with exit code {self._judge.wait()}")
        return line


ATTEMPTS = 3
"""So often the judge may end under a candidate before that is the candidate's doing, or nobody's to settle here."""
DEADLINE_S = 3600.0
"""A lane that has no answer after that is lost. The judge has deadlines of its own, all of them shorter."""
LOOK_S = 5.0
"""How often nodes that joined or left are looked for."""
KNOCK_S = 10.0
"""How long a head may take to answer at all."""
RESOURCES = {"tpu": "TPU", "gpu": "ratchet-gpu", "cpu": "ratchet-cpu"}
"""What a node that measures announces to Ray, by evaluator. Ray itself announces the TPUs of a machine that has any."""
_TOKEN = "cluster-token"


def environment() -> dict[str, str]:
    """What every process of Ray's gets: a shared secret, and no word to the network.

    The secret is a file beside this user's key; a further machine needs a copy of it.

    Raises:
      Refusal: INFRASTRUCTURE where there is no home folder.
    """
    try:
        path = key.path().with_name(_TOKEN)
    except key.NoKey as error:
        raise Refusal(Status.INFRASTRUCTURE, f"no place for the cluster's secret: {error}") from None
    return {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(path),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
        "RAY_DISABLE_IMPORT_WARNING": "1",
    }


def _ray() -> Any:
    """Raises:
    Refusal: INFRASTRUCTURE where it is not installed.
    """
    os.environ.update(environment())
    try:
        import ray
        from ray._private import services
    except ImportError as error:
        message = f"Ray cannot be imported ({error}): the judge's environment has it, and the extra `cluster`"
        raise Refusal(Status.INFRASTRUCTURE, message) from None
    services.resolve_ip_for_localhost = lambda host: host  # 127.0.0.1 is meant: nothing listens elsewhere
    return ray


@dataclass(eq=False, kw_only=True)
class _Task:
    asked: JudgeRequest | DeviceRequest
    future: Future[Any]
    """Of a ``Verdict``, or of a ``Device`` where that was asked."""
    named: bool = False
    """Of a ``Timed``."""
    without: str = ""
    """A node that is not asked. Where there is no other, the answer is None."""
    attempts: int = 0

    def begin(self) -> bool:
        """Whether it is still wanted: nobody cancelled it before it was handed out."""
        return self.future.running() or self.future.set_running_or_notify_cancel()


@dataclass(eq=False, kw_only=True)
class _Lane:
    node: str
    actor: Any
    task: _Task | None = None
    since: float = 0.0


@dataclass(kw_only=True)
class Cluster:
    """Lanes on the nodes of a Ray cluster. ``connected`` makes one."""

    ray: Any
    lane: Callable[[str], Any]
    """A ``lane.Lane`` of Ray's on a node."""
    say: Callable[[str], None]
    measures: str = ""
    """The evaluator of what is asked where it is measured; ``""`` where it is modelled."""
    _waiting: queue.SimpleQueue[_Task | None] = field(default_factory=queue.SimpleQueue)
    _tasks: list[_Task] = field(default_factory=list)
    _lanes: dict[str, list[_Lane]] = field(default_factory=dict)
    """By node."""
    _unfit: dict[str, str] = field(default_factory=dict)
    """Why a node was left out."""
    _looked: float = -LOOK_S
    _thread: threading.Thread | None = None

    @property
    def lanes(self) -> int:
        """How many candidates are judged at once now."""
        return sum(map(len, self._lanes.values()))

    def submit(self, asked: JudgeRequest) -> Future[Verdict]:
        """Judge it on any node. The future raises Refusal: INFRASTRUCTURE where no node is left, SEAL_BROKEN where all
        have another judge, or what a node's judge raised. Cancelled before it is handed out, it is not asked."""
        return self._submit(asked)

    def time(self, asked: JudgeRequest, *, without: str = "") -> Future[Timed | None]:
        """As ``submit``, and on which node; None where there is none but ``without``."""
        return self._submit(asked, named=True, without=without)

    def device(self) -> Device:
        """The device that measures: of the first node that says so. Nodes that have another one are left out later.

        Raises:
          Refusal: as ``submit``.
        """
        said: Device = self._submit(DeviceRequest(evaluator=self.measures)).result()
        return said

    def _submit(self, asked: JudgeRequest | DeviceRequest, *, named: bool = False, without: str = "") -> Future[Any]:
        future: Future[Any] = Future()
        self._waiting.put(_Task(asked=asked, future=future, named=named, without=without))
        return future

    def start(self) -> None:
        self.look()
        self._thread = threading.Thread(target=self._serve, name="cluster", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Nothing more is handed out, and lanes end."""
        self._waiting.put(None)
        if self._thread is not None:
            self._thread.join()

    def look(self) -> None:
        """Lanes for nodes that joined; those of nodes that left are forgotten."""
        self._looked = time.monotonic()
        alive = {node["NodeID"]: node for node in self.ray.nodes() if node["Alive"]}
        for name in set(self._lanes) - set(alive):
            for one in list(self._lanes[name]):
                self._lose(one, "its node left the cluster")
            self._lanes.pop(name, None)
        for name, node in alive.items():
            if name not in self._unfit:
                lanes = self._lanes.setdefault(name, [])
                missing = self._wanted(node["Resources"]) - len(lanes)
                lanes += [_Lane(node=name, actor=self.lane(name)) for _ in range(missing)]

    def _wanted(self, announced: Mapping[str, float]) -> int:
        """How many lanes a node with these resources has for this run."""
        if self.measures:
            return int(announced.get(RESOURCES[self.measures], 0) >= 1)
        return 0 if any(one in announced for one in RESOURCES.values()) else int(announced.get("CPU", 0))

    def _serve(self) -> None:
        running: dict[Any, _Lane] = {}
        while self._take(block=not running and not self._tasks):
            if time.monotonic() - self._looked > LOOK_S:
                self.look()
                running = {ref: one for ref, one in running.items() if one.task is not None}
            self._fail_if_alone()
            for one in [one for lanes in self._lanes.values() for one in lanes if one.task is None]:
                task = self._next(one.node)
                if task is not None:
                    one.task, one.since = task, time.monotonic()
                    running[one.actor.ask.remote(encode_request(task.asked))] = one
            done = self.ray.wait(list(running), num_returns=1, timeout=0.5)[0] if running else []
            for ref in done:
                self._end(running.pop(ref), ref)
            for ref, one in list(running.items()):
                if time.monotonic() - one.since > DEADLINE_S:
                    running.pop(ref)
                    self._lose(one, f"no answer after {DEADLINE_S:.0f} s")
        for one in [one for lanes in self._lanes.values() for one in lanes]:
            with contextlib.suppress(Exception):  # it may be gone
                self.ray.kill(one.actor)

    def _take(self, *, block: bool) -> bool:
        """What was asked meanwhile; False once this is closed."""
        with contextlib.suppress(queue.Empty):
            while True:
                task = self._waiting.get(block=block, timeout=LOOK_S if block else None)
                if task is None:
                    return False
                self._tasks.append(task)
                block = False
        return True

    def _next(self, node: str) -> _Task | None:
        """The next that is still wanted, of those for this node."""
        for task in [one for one in self._tasks if one.without != node]:
            self._tasks.remove(task)
            if task.begin():
                return task
        return None

    def _end(self, one: _Lane, ref: Any) -> None:
        task = one.task
        if task is None:  # its lane was lost, and it is asked for elsewhere
            return
        try:
            verdict = decode_answer(self.ray.get(ref))
            if not isinstance(verdict, Unfit):
                check_answer(task.asked, verdict)
        except Refusal as refusal:
            one.task = None
            task.future.set_exception(refusal)
        except (self.ray.exceptions.RayTaskError, ValueError, KeyError, TypeError) as error:
            one.task = None  # the node's judge ended, or said what is no answer
            self._again(task, str(error).strip().splitlines()[-1:])
        except self.ray.exceptions.RayError:
            self._lose(one, "its process or its node ended")
        else:
            one.task = None
            if isinstance(verdict, Unfit):
                self._leave_out(one.node, verdict.why)
                self._tasks.insert(0, task)
            else:
                named = task.named and isinstance(verdict, Verdict) and Timed(verdict=verdict, node=one.node)
                task.future.set_result(named or verdict)

    def _again(self, task: _Task, why: list[str]) -> None:
        task.attempts += 1
        if task.attempts < ATTEMPTS:
            self._tasks.insert(0, task)
            return
        message = f"a candidate's judge ended {ATTEMPTS} times without a verdict: {' '.join(why)[:200]}"
        task.future.set_exception(Refusal(Status.INFRASTRUCTURE, message))

    def _lose(self, one: _Lane, why: str) -> None:
        """A lane is gone; what it had is the next to be asked for."""
        lanes = self._lanes.get(one.node, [])
        if one in lanes:
            lanes.remove(one)
        with contextlib.suppress(Exception):
            self.ray.kill(one.actor)
        if one.task is not None:
            self.say(f"a lane of node {one.node[:8]} is lost ({why}): its candidate is tried elsewhere")
            self._tasks.insert(0, one.task)
            one.task = None

    def _leave_out(self, node: str, why: str) -> None:
        self.say(f"node {node[:8]} is left out: {why}")
        self._unfit[node] = why
        for one in list(self._lanes.pop(node, [])):
            self._lose(one, why)

    def _fail_if_alone(self) -> None:
        if self._tasks and not self.lanes:
            self.look()
        for task in [one for one in self._tasks if one.without and not self._is_with_another(one.without)]:
            self._tasks.remove(task)
            if task.begin():
                task.future.set_result(None)
        if not self._tasks or self.lanes:
            return
        if self._unfit:
            refusal = Refusal(Status.SEAL_BROKEN, f"no node has this judge: {next(iter(self._unfit.values()))}")
        else:
            which = f"that announces a {self.measures} to measure on" if self.measures else "that models"
            start = f"{PROGRAM} node --measures {self.measures}" if self.measures else f"{PROGRAM} node"
            todo = f"start one by `{start}`, then the same command goes on from here"
            refusal = Refusal(Status.INFRASTRUCTURE, f"no node of the cluster is left {which}: {todo}")
        for task in self._tasks:
            if task.begin():
                task.future.set_exception(refusal)
        self._tasks.clear()

    def _is_with_another(self, node: str) -> bool:
        return any(lanes for name, lanes in self._lanes.items() if name != node)


def _knock(address: str) -> None:
    """Ray would wait for minutes where nobody listens.

    Raises:
      Refusal: INFRASTRUCTURE, USAGE.
    """
    host, _, port = address.rpartition(":")
    if not (host and port.isascii() and port.isdigit() and 0 < int(port) < 1 << 16):
        raise Refusal(Status.USAGE, f"--cluster {address!r:.80} is no address: wanted HOST:PORT such as 127.0.0.1:6379")
    try:
        socket.create_connection((host, int(port)), timeout=KNOCK_S).close()
    except (OSError, UnicodeError) as error:
        raise _unreachable(address, getattr(error, "strerror", "") or str(error)) from None


def _unreachable(address: str, why: str) -> Refusal:
    todo = f"start its head by `{PROGRAM} node`, or look at HOST:PORT"
    return Refusal(Status.INFRASTRUCTURE, f"the cluster at {address!r:.80} cannot be reached ({why[:200]}): {todo}")


@contextlib.contextmanager
def connected(
    address: str, *, say: Callable[[str], None], measures: str = "", command: list[str] | None = None
) -> Iterator[Cluster]:
    """The cluster whose head is at ``address``, ``HOST:PORT``. This machine has to be one of its nodes.

    ``measures`` is the evaluator of what will be asked, if it is measured. ``command`` is what a lane starts, in the
    place of its node's own judge.

    Raises:
      Refusal: INFRASTRUCTURE where it cannot be reached, USAGE where ``address`` is none.
    """
    _knock(address)
    ray = _ray()
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    before = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address=address, logging_level="ERROR", log_to_driver=False, configure_logging=False)
    except Exception as error:  # Ray has many, and most are RuntimeErrors
        why = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise _unreachable(address, why) from None
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    def on(node: str) -> Any:
        strategy = NodeAffinitySchedulingStrategy(node_id=node, soft=False)
        wanted = {RESOURCES[measures]: 1} if measures else {}
        made = ray.remote(Lane).options(num_cpus=1, resources=wanted, max_restarts=0, scheduling_strategy=strategy)
        return made.remote(command)

    cluster = Cluster(ray=ray, lane=on, say=say, measures=measures)
    try:
        cluster.start()
        what = f"measure on {measures}" if measures else "model"
        say(f"lanes that {what}: {cluster.lanes}, on nodes: {sum(map(bool, cluster._lanes.values()))}")
        yield cluster
    finally:
        cluster.close()
        ray.shutdown()
