"""XProf captures on a device, and the device's own times read from them. Only the timing child uses this."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import jax

from ratchet.values.status import Refusal, Status

MODULES = "XLA Modules"
"""The line of a TPU's plane that holds one event for every run of a compiled program."""


def times(platform: str) -> bool:
    """Whether this kind of device reports its own times in a profile. Read for TPUs only: see docs/tpu-day-one.md."""
    return platform == "tpu"


@contextlib.contextmanager
def recording(folder: Path, platform: str, *, deep: bool, wanted: bool) -> Iterator[None]:
    """Capture a trace into ``folder`` where ``wanted``; on a TPU as TRACE_COMPUTE, or with sync flags if ``deep``."""
    if not wanted:
        yield
        return
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
    if not times(platform) or not rounds:
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
