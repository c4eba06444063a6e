"""Launch after launch until the candidate is known to be faster or not, or the time is over. In the judge's process."""

from __future__ import annotations

import json
import math
import os
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ratchet.exam.measure import stats
from ratchet.process.sandbox.child import OPEN, Child, Limits
from ratchet.values import ArraySpec, Launch, Paired, Samples
from ratchet.values.status import Refusal, Status

WORKER = "ratchet.exam.measure.timing_worker"
LIMITS = Limits(seconds=300, memory_bytes=20 << 30)
CANDIDATE, INCUMBENT = "candidate", "incumbent"

KINDS = ("random", "fresh-1", "fresh-2", "fresh-3")
"""The instances whose inputs are rotated while timing. Their references are known, so every output is checked."""

ALONE = 5
"""Launches of a kernel that is timed without another to compare with."""
FEWEST = 3
LAUNCHES_PER_PYTHON = 8
"""Launches are forked from one Python that has imported JAX and opened no device; then another is started."""
LAUNCH_SECONDS = 1.0
"""What a launch spends on timed calls, at least 30 rounds apart."""
BUDGET_SECONDS = 120.0

ENVIRONMENT = {
    "cpu": {"JAX_PLATFORMS": "cpu"},
    "gpu": {"JAX_PLATFORMS": "cuda,cpu"},
    "tpu": {"JAX_PLATFORMS": "tpu,cpu"},
}

LIBRARIES = "RATCHET_LIBRARY_PATH"
"""Environment variable: where a device's driver has its libraries; ``LD_LIBRARY_PATH`` as the user has it."""

CACHE = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0", "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1"}

Verify = Callable[[str, str, Path], None]
"""``verify(program's name, kind, folder with its outputs)``; raises a refusal where they are wrong."""


@dataclass(kw_only=True)
class Device:
    """The processes that run programs on one device."""

    evaluator: str
    folder: Callable[[str], Path]
    """A new folder of a name."""
    limits: Limits = LIMITS
    _child: Child | None = None
    _served: int = 0
    _compiled: Path | None = None
    """What the first launch compiled, for the others of this verdict. Gone with the verdict."""

    def ask(self, request: dict[str, Any]) -> tuple[dict[str, Any], Path]:
        """One launch: the record that its process left, and the folder of its outputs.

        Raises:
          Refusal: what the launch ended with, or ``CANNOT_VERIFY`` if it crashed, hung or ran out of memory.
        """
        if self._child is None or not self._child.alive or self._served >= LAUNCHES_PER_PYTHON:
            self.close()
            if self._compiled is None:
                self._compiled = self.folder("compiled")
            environment = {**ENVIRONMENT[self.evaluator], **CACHE, "JAX_COMPILATION_CACHE_DIR": str(self._compiled)}
            if libraries := os.environ.get(LIBRARIES):
                environment["LD_LIBRARY_PATH"] = libraries
            self._child = Child(WORKER, directory=self.folder("timing"), environment=environment, walls=OPEN)
            self._child.ask(self._child.directory, self.limits)  # the imports are done, so they disturb no timing
            self._served = 0
        self._served += 1
        folder = self.folder("launch")
        folder.mkdir(parents=True)
        (folder / "request.json").write_text(json.dumps(request))
        ending = self._child.ask(folder, self.limits)
        path = folder / "launch.json"
        if ending.how != "answered" or not path.exists():
            how = ending.answer or ending.how
            raise Refusal(
                Status.CANNOT_VERIFY, f"running the program on the {self.evaluator} {how}: {ending.tail.strip()[-300:]}"
            )
        record = json.loads(path.read_text())
        if record["status"] != Status.PASS.name:
            status = Status.__members__.get(record["status"], Status.CANNOT_VERIFY)
            raise Refusal(status, f"on the {self.evaluator}: {record['message']}")
        return record, folder

    def close(self) -> None:
        if self._child is not None:
            self._child.close()
            self._child = None


@dataclass(kw_only=True)
class Session:
    """Times one candidate, alone or beside the incumbent."""

    device: Device
    inputs: Path
    """Holds a folder for each of ``KINDS``."""
    specs: Sequence[ArraySpec]
    verify: Verify
    programs: dict[str, Path]
    """The exported programs: of the candidate, and of the incumbent if there is one."""
    test: int = 1
    """Comparisons that the ledger has seen, this one included."""
    budget_s: float = BUDGET_SECONDS
    launch_s: float = LAUNCH_SECONDS
    capture: Path | None = None
    """Where the first launch leaves an XProf capture."""
    deep: bool = False
    progress: Callable[[str], None] = lambda text: None
    _known: dict[str, list[list[str]]] = field(default_factory=dict)

    def run(self) -> tuple[Samples, Paired | None]:
        """All launches, and what they say of the two programs.

        Raises:
          Refusal: whatever a launch or the check of its outputs finds.
        """
        start = time.monotonic()
        launches: list[Launch] = []
        device = ""
        while not self._enough(launches, time.monotonic() - start):
            launch, device = self.launch(first=not launches)
            launches.append(launch)
            self.progress(f"launch {len(launches)}: {self._so_far(launches)}")
        seconds = time.monotonic() - start
        samples = Samples(evaluator=self.device.evaluator, device=device, launches=tuple(launches), seconds=seconds)
        return samples, conclusion(samples, test=self.test) if INCUMBENT in self.programs else None

    def _enough(self, launches: Sequence[Launch], spent: float) -> bool:
        if INCUMBENT not in self.programs:
            return len(launches) >= ALONE
        if len(launches) < FEWEST:
            return False
        decided = stats.answer([difference(one) for one in launches], stats.level(self.test)) != stats.CANNOT_TELL
        return decided or spent + spent / len(launches) > self.budget_s

    def launch(self, *, first: bool = False) -> tuple[Launch, str]:
        """One launch and the device's name; with ``first``, the one that leaves an XProf capture."""
        start = time.monotonic()
        names = [CANDIDATE, INCUMBENT] if INCUMBENT in self.programs else [CANDIDATE]
        if secrets.randbelow(2):
            names.reverse()
        record, folder = self.device.ask(
            {
                "inputs": str(self.inputs),
                "kinds": KINDS,
                "specs": [{"shape": spec.shape, "dtype": spec.dtype} for spec in self.specs],
                "programs": [
                    {"name": name, "path": str(self.programs[name]), "known": self._known.get(name, [])}
                    for name in names
                ],
                "seconds": self.launch_s,
                "capture": str(self.capture) if first and self.capture else "",
                "deep": self.deep,
            }
        )
        for name in names:
            digests = record["programs"][name]["digests"]
            if digests not in self._known.get(name, []):  # values that were not verified yet
                for kind in KINDS:
                    self.verify(name, kind, folder / name / kind)
                self._known.setdefault(name, []).append(digests)
        times = {
            name: [tuple(ns / 1e6 for ns in record["programs"][name][clock]) for clock in ("wall_ns", "device_ns")]
            for name in names
        }
        mine, other = times[CANDIDATE], times.get(INCUMBENT, [(), ()])
        launch = Launch(
            candidate_ms=mine[0],
            candidate_device_ms=mine[1],
            incumbent_ms=other[0],
            incumbent_device_ms=other[1],
            candidate_first=names[0] == CANDIDATE,
            seconds=time.monotonic() - start,
        )
        return launch, record["device"]

    def _so_far(self, launches: Sequence[Launch]) -> str:
        if INCUMBENT not in self.programs:
            return f"{sorted(launches[-1].candidate_ms)[len(launches[-1].candidate_ms) // 2]:.4g} ms"
        seen = [difference(one) for one in launches]
        return f"speed-up {math.exp(stats.centre(seen)):.4f}"


def difference(launch: Launch) -> float:
    """A launch's log speed-up, by the device's clock where it has one."""
    if launch.candidate_device_ms and launch.incumbent_device_ms:
        return stats.difference(launch.candidate_device_ms, launch.incumbent_device_ms)
    return stats.difference(launch.candidate_ms, launch.incumbent_ms)


def conclusion(samples: Samples, *, test: int) -> Paired:
    """What paired samples say in the ``test``-th comparison of a ledger."""
    seen = [difference(one) for one in samples.launches]
    return stats.conclude(seen, test=test, samples=samples.calls, seconds=samples.seconds)
