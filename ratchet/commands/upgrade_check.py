"""``ratchet upgrade-check --jax OLD --jax NEW TARGET…``: the same kernels under two versions of JAX and libtpu."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ratchet.commands.environments import environment_of
from ratchet.commands.options import inputs, json_option, seconds
from ratchet.commands.targets import target_of
from ratchet.process import paths
from ratchet.process.boot import home
from ratchet.upgrade.upgrade import FAILED, REQUEST, request_of, side_name, upgraded
from ratchet.values.change import Costs, Output, Side
from ratchet.values.status import KILLED, Refusal, Status
from ratchet.view.changes import upgrade_document, upgrade_text
from ratchet.view.document import dumps

_NO_TPU = {"JAX_PLATFORMS": "cpu", "TPU_SKIP_MDS_QUERY": "1"}
"""For a process that executes on the CPU; its compilers have variables of their own."""
_POLL_S = 0.2
_SAID = 400


def upgrade_check_options(parser: argparse.ArgumentParser) -> None:
    """Targets, and two versions of JAX."""
    parser.add_argument("targets", nargs="+", metavar="TARGET", help="pkg.module:function, path/file.py:function")
    parser.add_argument(
        "--jax", action="append", required=True, metavar="VERSION", help="twice: the old one, and the new one"
    )
    parser.add_argument("--no-values", dest="values", action="store_false", help="execute nothing: compile and model")
    parser.add_argument(
        "--allowed", type=_share, default=0.02, metavar="SHARE", help="by how much a latency may grow; default 0.02"
    )
    parser.add_argument(
        "--deadline", type=seconds(more=True), default=900, metavar="SECONDS", help="for each target; default 900"
    )
    json_option(parser)
    inputs(parser)


def _share(text: str) -> float:
    """Reads a share from 0 to below 1."""
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share < 1:
        raise argparse.ArgumentTypeError(f"{text!r:.60}, wanted a share such as 0.02")
    return share


def upgrade_check_command(options: argparse.Namespace, *, say: Callable[[str], None]) -> int:
    """Compare every target on every chip; ``REGRESSED`` where one got worse, ``UNSETTLED`` where one may have."""
    if len(options.jax) != 2:
        raise Refusal(Status.USAGE, f"--jax is given {len(options.jax)} times: wanted the old version, and the new one")
    environments = [environment_of(version) for version in options.jax]
    requests = [request_of(*one) for one in _targets(options)]
    before, after = (
        sides(requests, version, environment, values=options.values, deadline=options.deadline, say=say)
        for version, environment in zip(options.jax, environments, strict=True)
    )
    made = [upgraded(one, other, allowed_share=options.allowed) for one, other in zip(before, after, strict=True)]
    print(dumps(upgrade_document(made)) if options.json else upgrade_text(made, versions=options.jax))
    if any(one.worse for one in made):
        return Status.REGRESSED.exit_code
    return (Status.UNSETTLED if any(one.unsettled for one in made) else Status.PASS).exit_code


def _targets(options: argparse.Namespace) -> list[tuple[Any, Any, str]]:
    """Every target with each of its cases."""
    listed = []
    for text in options.targets:
        options.target = text
        target, cases = target_of(options)
        listed += [(target, case, text) for case in cases]
    return listed


def sides(
    requests: Sequence[Mapping[str, Any]],
    version: str,
    environment: Path,
    *,
    values: bool,
    deadline: float,
    say: Callable[[str], None],
) -> list[Side]:
    """All targets under one environment, in a process of its own: another one goes on behind a target that ended it.

    Raises:
      Refusal: what the process refused, or ``INFRASTRUCTURE`` with what it said where it left no answer.
    """
    say(f"jax {version}: {len(requests)} targets")
    sides: dict[int, Side] = {}
    with tempfile.TemporaryDirectory(prefix="ratchet-") as name:
        folder = Path(name)
        while len(sides) < len(requests):
            waiting = [number for number in range(len(requests)) if number not in sides]
            request = {"targets": [(number, requests[number]) for number in waiting], "values": values}
            paths.write(folder / REQUEST, json.dumps(request).encode())
            ending = _run(folder, environment, waiting, deadline)
            for number in waiting:
                record = _record(folder, number)
                if not record.get("finished"):
                    sides[number] = _ended(record, requests[number], ending, version)
                    say(f"jax {version}: {requests[number]['title']}: {ending.why}")
                    break
                sides[number] = _side(record, folder)
    return [sides[number] for number in range(len(requests))]


@dataclass(frozen=True, kw_only=True)
class _Ending:
    """How a process ended: ``code`` is its exit code, None where this one ended it."""

    code: int | None
    said: str
    why: str


def _run(folder: Path, environment: Path, waiting: Sequence[int], deadline: float) -> _Ending:
    """Let a process answer, as long as it says something of one more target within the deadline.

    Raises:
      Refusal: what it refused.
    """
    python = os.path.realpath(environment / "bin" / "python")
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            [python, "-I", "-S", str(home.START), "upgrade", str(environment), str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**home.judges_environment(dict(os.environ), environment), **_NO_TPU},
        )
        try:
            code = _wait(process, folder, waiting, deadline)
        finally:
            process.kill()
            process.wait()
        output.seek(0)
        said = "".join(output.read().strip().splitlines()[-1:])[:_SAID]
    if paths.is_file(folder / FAILED):
        failed = json.loads(paths.read(folder / FAILED).decode())
        raise Refusal(Status[failed["status"]], failed["message"])
    why = f"nothing new in {deadline:g} s, see --deadline" if code is None else f"its process ended with {code}"
    if code is not None and code < 0:
        why = f"its process was ended by signal {-code}"
    return _Ending(code=code, said=said, why=why)


def _wait(process: subprocess.Popen[bytes], folder: Path, waiting: Sequence[int], deadline: float) -> int | None:
    """The exit code; None where nothing was said for as long as the deadline."""
    last, known = time.monotonic(), 0
    while time.monotonic() - last < deadline:
        try:
            return process.wait(timeout=_POLL_S)
        except subprocess.TimeoutExpired:
            now = sum(1 + bool(record.get("finished")) for one in waiting if (record := _record(folder, one)))
            last, known = (time.monotonic(), now) if now != known else (last, known)
    return None


def _record(folder: Path, number: int) -> dict[str, Any]:
    path = folder / side_name(number)
    return json.loads(paths.read(path).decode()) if paths.is_file(path) else {}


def _ended(record: Mapping[str, Any], request: Mapping[str, Any], ending: _Ending, version: str) -> Side:
    """A target whose process ended before it was done: not settled where it was killed, else broken.

    Raises:
      Refusal: ``INFRASTRUCTURE`` where the process ended by itself.
    """
    if ending.code is not None and ending.code >= 0:
        raise Refusal(Status.INFRASTRUCTURE, f"under jax {version}: {ending.said or 'no answer'}")
    killed = ending.code is None or ending.code in KILLED
    status = Status.UNSETTLED if killed else Status.COMPILER_CRASHED
    blank = {"target": request["title"], "chip": request["chip"], "jax_version": "", "no_values": ending.why}
    lost = {"costs": {"status": status.name, "reason": ending.why}}
    return _side({**lost, **blank, **record, "ended": ending.why if killed else ""}, Path())


def _side(record: Mapping[str, Any], folder: Path) -> Side:
    """A record's entries are a side's, except for what JSON does not have."""
    known = {name: value for name, value in record.items() if name != "finished"}
    known["costs"] = Costs(**{**record["costs"], "status": Status[record["costs"]["status"]]})
    known["findings"] = tuple(record.get("findings", ()))
    if "outputs" in record:
        known["outputs"] = tuple(
            Output(shape=tuple(one["shape"]), dtype=one["dtype"], data=paths.read(folder / one["file"]))
            for one in record["outputs"]
        )
    return Side(**known)
