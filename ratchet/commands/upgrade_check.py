"""``ratchet upgrade-check --jax OLD --jax NEW TARGET…``: the same kernels under two versions of JAX and libtpu."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ratchet import home, launch
from ratchet.commands.environments import environment_of
from ratchet.commands.targets import target_of
from ratchet.upgrade import upgraded
from ratchet.upgrade_plain import REQUEST, SIDE, request_of
from ratchet.values.change import Costs
from ratchet.values.status import Refusal, Status
from ratchet.values.upgrade import Output, Side
from ratchet.view import verdict_json
from ratchet.view.upgrade import upgrade_document, upgrade_text

_NO_TPU = {"JAX_PLATFORMS": "cpu", "TPU_SKIP_MDS_QUERY": "1"}
"""For a process that executes on the CPU; its compilers have variables of their own."""


def command(options: argparse.Namespace, *, say: Callable[[str], None]) -> int:
    """Compare every target on every chip; ``REGRESSED`` where one got worse."""
    if len(options.jax) != 2:
        raise Refusal(Status.USAGE, f"--jax is given {len(options.jax)} times: wanted the old version, and the new one")
    environments = [environment_of(version) for version in options.jax]
    wanted = [request_of(*one) for one in _targets(options)]
    before, after = (
        _sides(wanted, version, environment, values=options.values, say=say)
        for version, environment in zip(options.jax, environments, strict=True)
    )
    made = [upgraded(one, other, allowed_share=options.allowed) for one, other in zip(before, after, strict=True)]
    if options.json:
        print(verdict_json.dumps(upgrade_document(made)))
    else:
        print(upgrade_text(made, versions=options.jax))
    return (Status.REGRESSED if any(one.worse for one in made) else Status.PASS).exit_code


def _targets(options: argparse.Namespace) -> list[tuple[Any, Any, str]]:
    """Every target with each of its cases."""
    listed = []
    for text in options.targets:
        options.target = text
        target, cases = target_of(options)
        listed += [(target, case, text) for case in cases]
    return listed


def _sides(
    wanted: Sequence[Mapping[str, Any]], version: str, environment: Path, *, values: bool, say: Callable[[str], None]
) -> list[Side]:
    """All targets under one environment, in a process of its own.

    Raises:
      Refusal: ``INFRASTRUCTURE`` with what the process said, where it left no answer.
    """
    say(f"jax {version}: {len(wanted)} targets")
    python = os.path.realpath(environment / "bin" / "python")
    start = home.PACKAGE_ROOT / "ratchet" / "start.py"
    with tempfile.TemporaryDirectory(prefix="ratchet-") as name:
        folder = Path(name)
        (folder / REQUEST).write_text(json.dumps({"targets": list(wanted), "values": values}))
        done = subprocess.run(
            [python, "-I", "-S", str(start), "upgrade", str(environment), name],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            env={**launch.judges_environment(dict(os.environ), environment), **_NO_TPU},
        )
        if not (folder / SIDE).is_file():
            said = (done.stderr or done.stdout).strip().splitlines()[-1:]
            raise Refusal(Status.INFRASTRUCTURE, f"under jax {version}: {''.join(said)[:400] or 'no answer'}")
        return [_side(one, folder) for one in json.loads((folder / SIDE).read_text())["sides"]]


def _side(record: Mapping[str, Any], folder: Path) -> Side:
    outputs = record.get("outputs")
    costs = {**record["costs"], "status": Status[record["costs"]["status"]]}
    return Side(
        target=record["target"],
        chip=record["chip"],
        jax_version=record["jax_version"],
        costs=Costs(**costs),
        op_ms=record.get("op_ms", {}),
        copy_bytes=record.get("copy_bytes", {}),
        no_values=record.get("no_values", ""),
        findings=tuple(record.get("findings", ())),
        outputs=None
        if outputs is None
        else tuple(
            Output(shape=tuple(one["shape"]), dtype=one["dtype"], data=(folder / one["file"]).read_bytes())
            for one in outputs
        ),
    )
