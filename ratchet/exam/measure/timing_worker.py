"""The child process that runs exported programs on the device, to check their values and to time them.

No candidate Python is here: programs are ``jax.export`` artefacts. The process imports JAX once and forks for every
request *before* JAX opens a device, so that each launch is a fresh process with a runtime, threads, allocations and
compiled code of its own and still costs no import.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ratchet.exam.measure.rounds import Timed, check_clocks, time_rounds, warm_up
from ratchet.process.sandbox.child import serve
from ratchet.tpu import exporting
from ratchet.values.status import Refusal, Status

PADDING_BYTES = 1 << 22
"""Up to so much is allocated first, at random: where arrays and code lie should differ from launch to launch."""
TRACED_CALLS = 3
HLO = "optimized.hlo"
MODULES = "XLA Modules"
"""The line of a TPU's plane that holds one event for every run of a compiled program."""


def load_inputs(folder: Path, specs: Sequence[dict[str, Any]]) -> list[Any]:
    """Arrays that ``ratchet.exam.judge.values_worker`` wrote, on the device."""
    arrays = []
    for number, spec in enumerate(specs):
        raw = np.fromfile(folder / f"input{number}.bin", np.uint8)
        arrays.append(jax.device_put(raw.view(jnp.dtype(spec["dtype"])).reshape(spec["shape"])))
    jax.block_until_ready(arrays)
    return arrays


def save_outputs(folder: Path, outputs: Sequence[Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number, leaf in enumerate(outputs):
        np.ascontiguousarray(np.asarray(leaf)).view(np.uint8).tofile(folder / f"output{number}.bin")


def compiled(path: Path, name: str, arrays: Sequence[Any]) -> tuple[Callable[[Sequence[Any]], list[Any]], Any]:
    """The exported program at ``path``, compiled for this device as the module ``jit_<name>``, and its HLO module."""
    program = exporting.read(path.read_bytes())

    def call(*args: Any) -> list[Any]:
        return jax.tree.leaves(program.call(*args))

    call.__name__ = name
    executable: Any = jax.jit(call).lower(*arrays).compile()
    return lambda given: executable(*given), executable.runtime_executable().hlo_modules()[0]


def wait(outputs: Sequence[Any]) -> None:
    for leaf in outputs:
        leaf.block_until_ready()


def poison(outputs: Sequence[Any]) -> Callable[[], None]:
    """A function that fills memory like that of the outputs with NaN (or ones) and frees it for the next call."""
    filling = [
        np.full(leaf.shape, np.nan if jnp.issubdtype(leaf.dtype, jnp.inexact) else 1, leaf.dtype) for leaf in outputs
    ]

    def run() -> None:
        for leaf in [jax.device_put(array, may_alias=False) for array in filling]:
            leaf.block_until_ready().delete()

    run()
    return run


def has_device_times(platform: str) -> bool:
    """Whether this kind of device reports its own times in a profile. Read for TPUs only: see docs/tpu-day-one.md."""
    return platform == "tpu"


@contextlib.contextmanager
def recording(folder: Path, platform: str, *, deep: bool = False) -> Iterator[None]:
    """Capture a trace into ``folder``; on a TPU as TRACE_COMPUTE, or with sync flags if ``deep``."""
    options = jax.profiler.ProfileOptions()
    if platform == "tpu":
        mode = "TRACE_COMPUTE_AND_SYNC" if deep else "TRACE_COMPUTE"
        options.advanced_configuration = {"tpu_trace_mode": mode}
    options.python_tracer_level = 0
    with jax.profiler.trace(str(folder), profiler_options=options):
        yield


def durations(folder: Path, names: Sequence[str], platform: str, rounds: int) -> dict[str, list[int]]:
    """Nanoseconds on the device of every run of the modules ``jit_<name>``, in order; none without a profile.

    Raises:
      Refusal: ``INVALID`` if a profile was taken and does not show every run.
    """
    if not has_device_times(platform) or not rounds:
        return {}
    runs = of_profile(jax.profiler.ProfileData.from_file(str(newest(folder))), names)
    for name in names:
        if len(runs[name]) < rounds:
            raise Refusal(
                Status.INVALID, f"the profile shows {len(runs[name])} runs of the {name}, {rounds} were timed"
            )
    return {name: runs[name][:rounds] for name in names}  # those after timing come last


def newest(folder: Path) -> Path:
    """The capture in ``folder``.

    Raises:
      Refusal: ``INFRASTRUCTURE`` if there is none.
    """
    captures = sorted(folder.rglob("*.xplane.pb"))
    if not captures:
        raise Refusal(Status.INFRASTRUCTURE, f"the profiler left no .xplane.pb in {folder.name}")
    return captures[-1]


def of_profile(profile: jax.profiler.ProfileData, names: Sequence[str]) -> dict[str, list[int]]:
    """Durations, ns, of the runs of each module in a profile, by time of start. The first device's plane counts."""
    runs: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    planes = sorted((p for p in profile.planes if p.name.startswith("/device:")), key=lambda p: p.name)
    for line in (line for plane in planes[:1] for line in plane.lines if line.name == MODULES):
        for event in line.events:
            match = re.match(r"jit_(\w+?)(?:\(|\.\d|$)", event.name)
            if match and match[1] in runs:
                runs[match[1]].append((event.start_ns, event.duration_ns))
    return {name: [round(duration) for _, duration in sorted(timed)] for name, timed in runs.items()}


def launch(folder: Path, asked: dict[str, Any]) -> dict[str, Any]:
    """Compile, warm up and time the programs of one launch; the order in the request is that of everything."""
    start = time.monotonic()
    device = jax.devices()[0]
    pad = np.ones(random.SystemRandom().randrange(PADDING_BYTES), np.uint8)
    sets = [load_inputs(Path(asked["inputs"]) / kind, asked["specs"]) for kind in asked["kinds"]]
    programs: list[Timed] = []
    before: Callable[[], None] | None = None
    opened = time.monotonic()
    for entry in asked["programs"]:
        call, module = compiled(Path(entry["path"]), entry["name"], sets[0])
        program = Timed(name=entry["name"], call=call)
        outputs = warm_up(program, sets, wait)
        if program.digests not in entry["known"]:
            for kind, one in zip(asked["kinds"], outputs, strict=True):
                save_outputs(folder / program.name / kind, one)
            (folder / program.name / HLO).write_text(module.to_string())
            (folder / program.name / f"{HLO}.pb").write_bytes(module.as_serialized_hlo_module_proto())
        before = poison(outputs[0])
        programs.append(program)
        del outputs
    ready = time.monotonic()
    rounds = 0
    if asked["seconds"] > 0:
        own = recording(folder / "trace", device.platform) if has_device_times(device.platform) else None
        with own or contextlib.nullcontext():
            rounds = time_rounds(programs, sets, wait=wait, seconds=asked["seconds"], before=before or (lambda: None))
    device_ns = durations(folder / "trace", [p.name for p in programs], device.platform, rounds)
    for program in programs:
        check_clocks(program.wall_ns, device_ns.get(program.name, []))
    timed = time.monotonic()
    if asked.get("capture"):
        with recording(Path(asked["capture"]), device.platform, deep=asked["deep"]):
            for which in range(TRACED_CALLS):
                wait(programs[0].call(sets[which % len(sets)]))
    return {
        "status": Status.PASS.name,
        "message": "",
        "device": device.device_kind,
        "platform": device.platform,
        "padding": pad.size,
        "seconds": {"open": opened - start, "compile": ready - opened, "time": timed - ready},
        "programs": {
            p.name: {"wall_ns": p.wall_ns, "device_ns": device_ns.get(p.name, []), "digests": p.digests}
            for p in programs
        },
    }


def answer(folder: Path) -> None:
    """Work on one request and leave ``launch.json``; runs in a forked process that ends with it."""
    try:
        record = launch(folder, json.loads((folder / "request.json").read_text()))
    except Refusal as refusal:
        record = {"status": refusal.status.name, "message": refusal.message}
    except Exception as error:
        traceback.print_exc()
        record = {"status": "", "message": f"{type(error).__name__}: {' '.join(str(error).split())[:500]}"}
    (folder / "launch.json.new").write_text(json.dumps(record))
    (folder / "launch.json.new").rename(folder / "launch.json")


def handle(request: Path) -> str:
    """Answer one request in a process of its own; an empty request only says that the imports are done."""
    if not (request / "request.json").exists():
        return "ready"
    forked = os.fork()
    if forked == 0:
        try:
            answer(request)
        finally:
            os._exit(0)
    _, ending = os.waitpid(forked, 0)
    return f"ended {os.waitstatus_to_exitcode(ending)}"


if __name__ == "__main__":
    serve(handle)
