"""Measures the points of a shortlist on a TPU: ``python -m ratchet.tune.shortlist shortlist.json [--json FILE]``.

It runs in the user's own Python, with the user's JAX, in the folder where `ratchet tune` ran. Points are timed round
by round, so that all see the same machine. No values are checked, except that a program repeats itself. An argument of
integers is zeros, so a kernel whose loops depend on its inputs wants a generator.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from ratchet.exam.measure.rounds import Timed, time_rounds, warm_up
from ratchet.kernelfile.knobs import in_words
from ratchet.values.status import Refusal, Status

SECONDS = 2.0
"""What is spent on the timed calls of one call of the target."""


def main(given: Sequence[str] | None = None) -> int:
    """Time every call of a file and print the points, fastest first; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m ratchet.tune.shortlist")
    parser.add_argument("file", type=Path, metavar="FILE.json", help="what `ratchet tune --on tpu` wrote")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the measured times there")
    parser.add_argument("--on", choices=("tpu", "cpu"), default="tpu", help="cpu: to try it; its times say nothing")
    options = parser.parse_args(given)
    try:
        document = json.loads(options.file.read_text(encoding="utf-8"))
        calls = [measured(document["target"], call, platform=options.on) for call in document["calls"]]
    except Refusal as refusal:
        print(f"{refusal.status.name}: {refusal.message}", file=sys.stderr)
        return refusal.status.exit_code
    for call in calls:
        print(f"{call['device']}: {call['target']}, {len(call['points'])} points, {call['rounds']} rounds")
        for point in call["points"]:
            times = f"{point['measured_ms']:.5g} ms measured, {point['latency_ms']:.5g} ms modelled"
            print(f"  {times}: {in_words(point['point'])}")
    if options.json:
        options.json.write_text(json.dumps({"calls": calls}, indent=1) + "\n", encoding="utf-8")
    return Status.PASS.exit_code


def measured(target: str, call: Mapping[str, Any], *, platform: str) -> dict[str, Any]:
    """The points of one call with ``measured_ms``, fastest first; other points than the call's own chip are refused.

    Raises:
      Refusal: ``UNSUPPORTED_PLATFORM`` where no such device is attached, or another TPU than the points are for.
    """
    import jax

    found = jax.default_backend()
    if found != platform:
        message = (
            f"no TPU is attached: JAX runs on {found} here; run it on the machine that has a {call['device_kind']}"
        )
        raise Refusal(Status.UNSUPPORTED_PLATFORM, message)
    device = jax.devices()[0].device_kind
    if platform == "tpu" and device != call["device_kind"]:
        message = f"the points are for {call['device_kind']}, and a {device} is attached: tune for that one"
        raise Refusal(Status.UNSUPPORTED_PLATFORM, message)
    module, attribute = _imported(target)
    arrays = _arrays(call, module)
    programs = [
        Timed(name=str(number), call=_compiled(module, attribute, call, point["point"], arrays))
        for number, point in enumerate(call["points"])
    ]
    for program in programs:
        warm_up(program, [arrays], jax.block_until_ready)
    rounds = time_rounds(programs, [arrays], wait=jax.block_until_ready, seconds=SECONDS)
    points = [
        {**point, "measured_ms": statistics.median(program.wall_ns) / 1e6}
        for point, program in zip(call["points"], programs, strict=True)
    ]
    ordered = sorted(points, key=lambda point: point["measured_ms"])
    return {"target": target, "chip": call["chip"], "device": device, "rounds": rounds, "points": ordered}


def _imported(target: str) -> tuple[ModuleType, str]:
    where, _, attribute = target.rpartition(":") if ":" in target else (target, "", "kernel_fn")
    sys.path[:0] = [str(Path.cwd() / "src"), str(Path.cwd())]
    if not where.endswith(".py"):
        return importlib.import_module(where), attribute
    sys.path.insert(0, str(Path(where).resolve().parent))
    return importlib.import_module(Path(where).stem), attribute


def _arrays(call: Mapping[str, Any], module: ModuleType) -> Any:
    """A call's arguments, on the device: of its generator, or ones of the shape, zeros where they are integers."""
    import jax
    import jax.numpy as jnp

    if call["generator"]:
        made = getattr(module, call["generator"].rpartition(":")[2])(jax.random.key(0))
        return made if isinstance(made, tuple) else (made,)
    return tuple(
        jnp.full(one["shape"], 0 if jnp.issubdtype(one["dtype"], jnp.integer) else 1, one["dtype"])
        for one in call["inputs"]
    )


def _compiled(
    module: ModuleType, attribute: str, call: Mapping[str, Any], point: Mapping[str, Any], arrays: Any
) -> Callable[[Any], Any]:
    """The target at one point: constants are set in its module while it is traced, the others are arguments."""
    import jax

    function = inspect.unwrap(getattr(module, attribute))
    constants = {name: value for name, value in point.items() if name in call["constants"]}
    options = {**call["options"], **{name: value for name, value in point.items() if name not in constants}}
    before = {name: getattr(module, name) for name in constants}
    try:
        vars(module).update(constants)
        lowered = jax.jit(lambda *given: jax.tree.leaves(function(*given, **options))).lower(*arrays)
    finally:
        vars(module).update(before)
    compiled = lowered.compile()
    return lambda given: compiled(*given)


if __name__ == "__main__":
    sys.exit(main())
