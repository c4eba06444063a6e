"""``./ratchet.sh node`` and ``./ratchet.sh worker``: a machine that judges for others."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import secrets
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

from ratchet.commands.options import count_option
from ratchet.exam.judge.request import Request
from ratchet.exam.judge.workers import Workers
from ratchet.exam.measure import devices
from ratchet.process import paths
from ratchet.process.boot import home
from ratchet.search import cluster
from ratchet.search.protocol import Device, DeviceRequest, JudgeRequest, Unfit, decode_request, encode_answer
from ratchet.tpu.chips import CHIPS
from ratchet.tpu.compiler import compile as compiling
from ratchet.values import MEASURED, Against, Verdict
from ratchet.values.status import Refusal, Status
from ratchet.values.verdict import is_tpu
from ratchet.wiring import JudgeFunction, RepositoryJudge

LANE_GIB = 6
"""Memory that a lane may need: a compile, a schedule machine, a child for the kernel file."""
STORE_BYTES = 200 << 20
"""Of Ray's object store; a verdict takes a few MB at most."""
START = """\
from ray._private import services
services.resolve_ip_for_localhost = lambda host: host
from ray.scripts.scripts import main
main()
"""
"""Ray's own command, with 127.0.0.1 for what it says: Ray would listen on the machine's address instead."""


def node_options(parser: argparse.ArgumentParser) -> None:
    """Where the node is, and what it judges."""
    parser.add_argument("address", nargs="?", default="", metavar="HOST:PORT", help="of the head; default: be the head")
    parser.add_argument("--listen", default="127.0.0.1", metavar="IP", help="address of this node; default 127.0.0.1")
    count_option(parser, "--port", "of the head", 6379)
    count_option(parser, "--lanes", "candidates at once; default: by CPUs, and one for each 6 GiB")
    parser.add_argument(
        "--measures",
        choices=MEASURED,
        default="",
        help="announce this device: one lane, for measured trials alone; default: tpu where one is attached",
    )
    parser.add_argument("--folder", type=Path, metavar="DIR", help="where Ray keeps its files; default: Ray's own")


def node_command(options: argparse.Namespace) -> int:
    """Become a node of a cluster, or its head; never returns."""
    python = (home.environment() or Path(sys.prefix)) / "bin" / "python"
    environment = {**os.environ, **cluster.environment(), **_own_judge()}
    _make_token(Path(environment["RAY_AUTH_TOKEN_PATH"]), is_head=not options.address)
    os.execve(python, [str(python), "-c", START, *words(options)], environment)


def words(options: argparse.Namespace) -> list[str]:
    """The arguments of ``ray``."""
    where = (
        ["--address", options.address]
        if options.address
        else ["--head", "--port", str(options.port), "--include-dashboard", "false"]
    )
    lanes = options.lanes or lanes_of(os.cpu_count() or 1, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    measures = options.measures or ("tpu" if devices.tpu() else "")
    return [
        "start",
        *where,
        *("--node-ip-address", options.listen),
        *("--num-cpus", "1" if measures else str(lanes)),
        *(["--resources", json.dumps({cluster.RESOURCES[measures]: 1})] if measures else []),
        *("--object-store-memory", str(STORE_BYTES)),
        *("--include-log-monitor", "false"),
        *(["--temp-dir", str(options.folder)] if options.folder else []),
        "--disable-usage-stats",
        "--block",
    ]


def lanes_of(cpus: int, memory_bytes: int) -> int:
    """How many candidates a machine models at once."""
    return max(1, min(cpus, memory_bytes // (LANE_GIB << 30)))


def _own_judge() -> dict[str, str]:
    """How a lane starts this clone's judge."""
    start = [sys.executable, "-I", "-S", str(home.START), "ratchet", "worker"]
    return {"RATCHET_NODE": json.dumps(start)}


def _make_token(path: Path, *, is_head: bool) -> None:
    if paths.exists(path):
        return
    if not is_head:
        message = f"there is no {path}: copy it from the head, with mode 600; without it nobody joins"
        raise Refusal(Status.NOT_FOUND, message)
    folder, below = paths.of(path.parent)
    folder.make_folder(below, 0o700)
    root, name = paths.of(path)
    root.create(name, secrets.token_hex(32).encode(), 0o600)


def worker_command(*, root: Path, function: JudgeFunction) -> int:
    """Judge what standard input asks for, line by line, until it ends; answers go to what was standard output."""
    with os.fdopen(os.dup(1), "wb") as out:
        os.dup2(2, 1)  # nothing else may speak there
        judge = NodeJudge(root=root, function=function)
        try:
            serve(sys.stdin.buffer, out, judge.answer)
        finally:
            judge.close()
    return Status.PASS.exit_code


def serve(
    questions: BinaryIO, answers: BinaryIO, judge: Callable[[JudgeRequest | DeviceRequest], Verdict | Device | Unfit]
) -> None:
    """One answer for each question."""
    for line in questions:
        try:
            said = encode_answer(judge(decode_request(line)))
        except Refusal as refusal:
            said = encode_answer(refusal)
        answers.write(said)
        answers.flush()


@dataclasses.dataclass(kw_only=True)
class NodeJudge:
    """This clone's judge, asked by another machine."""

    root: Path
    function: JudgeFunction
    _workers: Workers | None = None
    _seal: str = ""

    def answer(self, asked: JudgeRequest | DeviceRequest) -> Verdict | Device | Unfit:
        """A verdict as ``Bench`` asks for it: modelled, with values or without, or measured on this node's device.

        Raises:
          Refusal: trouble of this machine.
        """
        if isinstance(asked, DeviceRequest):
            return device_of(asked.evaluator)
        if why := self.differs(asked):
            return Unfit(why=why)
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ratchet-")))
            kernel, lock = folder / Path(asked.kernel).name, folder / "lock.json"
            paths.write(kernel, asked.text)
            if asked.lock is not None:
                paths.write(lock, asked.lock)
            against = None
            if asked.beside is not None:
                against = Against(kernel=folder / "incumbent" / kernel.name, test=asked.beside.test)
                paths.make_folder(against.kernel.parent)
                paths.write(against.kernel, asked.beside.text)
            self._workers = self._workers or Workers(
                CHIPS[asked.chip], keep=True, compiles=is_tpu(asked.conditions.evaluator)
            )
            request = Request(
                kernel=kernel,
                root=self.root,
                kernel_rel=asked.kernel,
                conditions=asked.conditions,
                chip=CHIPS[asked.chip],
                against=against,
                model_only=asked.model_only,
                remember=asked.remember,
                lock_file=lock,
            )
            return self.function(request, workers=self._workers)

    def close(self) -> None:
        """End the judge's children."""
        if self._workers is not None:
            self._workers.close()

    def differs(self, asked: JudgeRequest) -> str:
        """Why this judge is not the driver's; ``""`` where it is."""
        self._seal = self._seal or RepositoryJudge.modelling(self.root, self.function).seal()
        wanted, compiler = asked.conditions, compiling.compiler_version()
        if wanted.evaluator in MEASURED:
            here = device_of(wanted.evaluator)
            if isinstance(here, Unfit):
                return here.why
            if here.chip != wanted.chip:
                return f"it measures on {here.chip}, and this series is of {wanted.chip}: use a cluster for each"
            compiler = here.compiler
        if (wanted.seal, wanted.compiler) == (self._seal, compiler):
            return ""
        todo = "bring both to one commit and one requirements.lock"
        return f"its judge is {self._seal}, {compiler}; wanted {wanted.seal}, {wanted.compiler}: {todo}"


def device_of(evaluator: str) -> Device | Unfit:
    """The device of this machine that measures, or why there is none."""
    try:
        return Device(chip=devices.device(evaluator), compiler=devices.compiler(evaluator))
    except Refusal as refusal:
        return Unfit(why=refusal.message)
