"""Strikes at every call of a turn that changes a file, in several ways, and at random times."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import shutil
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.faults import tracer
from benchmarks.faults.scene import Scene, State, Tally, aftermath, copied, degrade
from benchmarks.faults.tracer import Call
from benchmarks.lib.command import say
from benchmarks.lib.usage import with_descendants
from tests.loop.stage import Stage

WAYS = ("all", "power", "main", "one", "torn")
"""What is ended at a call: every process; every process, and what was not flushed is lost; the ratchet alone, while
git goes on; the calling process alone, so that the ratchet sees its git fail; every process, after half of a write."""
RANDOM = "random"


@dataclass(frozen=True, kw_only=True)
class Point:
    """Where a strike falls."""

    scene: Scene
    number: int
    """Of the call, from 1; of a random strike, any."""
    way: str


@dataclass
class _Watch:
    """Follows what is flushed, and strikes at one call."""

    number: int
    way: str
    root: Path
    spare: Path
    last_sync: int
    """The last call before ``number`` that flushes."""
    unsynced: dict[int, int] = field(default_factory=dict)
    """By inode, the bytes that were on the disk when a write first followed."""
    lost: dict[str, int] = field(default_factory=dict)
    """The same by path, as of the copy that a power cut goes back to."""
    name: str = ""

    def look(self, call: Call) -> str:
        if self.way == "power":
            self._follow(call)
        if call.number != self.number:
            return ""
        self.name = f"{call.name} {call.path}"
        return {"power": "all", "torn": "torn" if call.size > 1 else "all"}.get(self.way, self.way)

    def _follow(self, call: Call) -> None:
        if call.number == self.last_sync + 1:  # all before it is on the disk, in order
            shutil.copytree(self.root, self.spare, symlinks=True)
            self.lost = self._by_path()
        try:
            state = os.stat(self.root / call.path, follow_symlinks=False)
        except OSError:
            return
        if call.name in tracer.SYNCS:
            self.unsynced.pop(state.st_ino, None)
        elif call.name in tracer.WRITES:
            self.unsynced.setdefault(state.st_ino, state.st_size)
        elif call.flags & os.O_TRUNC:
            self.unsynced[state.st_ino] = 0

    def _by_path(self) -> dict[str, int]:
        files = (Path(parent, name) for parent, _, names in os.walk(self.root) for name in names)
        inodes = {os.lstat(file).st_ino: os.path.relpath(file, self.root) for file in files}
        return {inodes[inode]: size for inode, size in self.unsynced.items() if inode in inodes}

    def cut_power(self, chance: random.Random) -> None:
        """Either all calls were made and what was not flushed is damaged, or what followed the last flush is undone."""
        lost = self._by_path()
        if self.spare.exists() and chance.random() < 0.5:
            shutil.rmtree(self.root)
            self.spare.rename(self.root)
            lost = self.lost
        degrade(self.root, lost, chance)


@dataclass
class Striker:
    """Strikes at copies of each scene's repository, in ``folder``."""

    folder: Path
    chance: random.Random
    _made: dict[str, Stage] = field(default_factory=dict)
    _calls: dict[str, list[Call]] = field(default_factory=dict)
    _count: Iterator[int] = field(default_factory=itertools.count)
    _seconds: float = 0.0
    """What a turn takes: a tenth of a second of a processor, and more where others use it."""

    def stage(self, scene: Scene) -> Stage:
        """The repository before the turn."""
        if scene.name not in self._made:
            stage = scene.make(self.folder / f"template {scene.name}")
            if scene.cut_off:
                self._cut_off(scene, stage)
            self._made[scene.name] = stage
        return self._made[scene.name]

    def _cut_off(self, scene: Scene, stage: Stage) -> None:
        seen: list[str] = []

        def look(call: Call) -> str:
            over = scene.cut_off in seen
            seen.append(call.path)
            return "all" if over else ""

        _traced(scene, stage, look)

    def calls(self, scene: Scene) -> list[Call]:
        """The calls of the whole turn."""
        if scene.name not in self._calls:
            stage, calls = self._fresh(scene), self._calls.setdefault(scene.name, [])
            _traced(scene, stage, tracer.noting(calls))
            shutil.rmtree(stage.root)
        return self._calls[scene.name]

    def _fresh(self, scene: Scene) -> Stage:
        return copied(self.stage(scene), self.folder / f"{next(self._count)}")

    def strike(self, point: Point) -> Tally:
        """One strike and the next turn."""
        stage = self._fresh(point.scene)
        if point.way == RANDOM:
            where = f"{point.scene.name}, {self._at_random(point.scene, stage)}"
        else:
            where = f"{point.scene.name}, {point.way} at call {point.number}, {self._at_call(point, stage)}"
        tally = aftermath(point.scene, stage, State.of(stage), where=where)
        if not tally.faults:
            shutil.rmtree(stage.root)
        return tally

    def _at_call(self, point: Point, stage: Stage) -> str:
        syncs = [call.number for call in self.calls(point.scene) if call.name in tracer.SYNCS]
        watch = _Watch(
            number=point.number,
            way=point.way,
            root=stage.root,
            spare=stage.root.with_name(f"{stage.root.name} flushed"),
            last_sync=max((number for number in syncs if number < point.number), default=0),
        )
        _traced(point.scene, stage, watch.look)
        if point.way == "power":
            watch.cut_power(self.chance)
        shutil.rmtree(watch.spare, ignore_errors=True)
        return watch.name or "which did not come"

    def _at_random(self, scene: Scene, stage: Stage) -> str:
        """Ends the turn and all that it started after a while."""
        if not self._seconds:
            start, other = time.monotonic(), self._fresh(scene)
            scene.turn(other)
            self._seconds = time.monotonic() - start
            shutil.rmtree(other.root)
        child = os.fork()
        if not child:
            os.setpgid(0, 0)
            os._exit(scene.turn(stage).exit_code)
        seconds = self.chance.uniform(0.0, self._seconds)
        time.sleep(seconds)
        for one in with_descendants(child):
            with contextlib.suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)
        os.waitpid(child, 0)
        return f"{RANDOM} after {seconds * 1e3:.0f} ms"


def _traced(scene: Scene, stage: Stage, look: tracer.Look) -> None:
    tracer.trace(lambda: scene.turn(stage).exit_code, watched=stage.root, look=look)


def plan(striker: Striker, scenes: tuple[Scene, ...], kills: int, chance: random.Random) -> tuple[list[Point], int]:
    """``kills`` strikes: every call of every scene once, the ways in turn, then calls again in other ways.

    A tenth is at random times. Where there are more calls than strikes, evenly spaced ones are struck. Before a flush
    the power is cut: for a mere end of processes the flush makes no difference. Also how many calls there are.
    """
    points = [(scene, call) for scene in scenes for call in striker.calls(scene)]
    at_random = [Point(scene=chance.choice(scenes), number=0, way=RANDOM) for _ in range(kills // 10)]
    wanted = kills - len(at_random)
    rounds = [
        Point(scene=scene, number=call.number, way="power" if call.name in tracer.SYNCS else WAYS[place % len(WAYS)])
        for turn in range(len(WAYS))
        for place, (scene, call) in enumerate(points, turn)
    ]
    if wanted < len(points):
        first = chance.random()
        rounds = [rounds[int((step + first) * len(points) / wanted)] for step in range(wanted)]
    return [*rounds[:wanted], *at_random], len(points)


def strike_all(striker: Striker, points: list[Point]) -> dict[str, Tally]:
    """Tallies by way."""
    tallies = {way: Tally() for way in (*WAYS, RANDOM)}
    for number, point in enumerate(points, 1):
        tallies[point.way].add(striker.strike(point))
        if not number % 50:
            say(f"{number} of {len(points)} kills")
    return tallies
