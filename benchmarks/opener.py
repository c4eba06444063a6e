"""What the opener costs: its calls in a whole turn of the ratchet with the real judge, beside plain calls.

    python -m benchmarks.opener [--kernel FILE] [--json FILE]

A kernel is judged by a turn in a new repository, and every outermost call of ``ratchet/process/root.py`` is counted and
timed: wall clock, the least of three turns. Then the calls are made again by the opener and by plain functions: what
reads on the same paths, what writes with as many bytes in a folder of its own; the least of five. The difference of
the two is the price.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.lib.command import command, say
from benchmarks.lib.sources import ROOT
from benchmarks.lib.table import show_all
from ratchet.loop.experiment import Idea, run_experiment
from ratchet.process import paths
from ratchet.process.root import Root
from ratchet.tpu.chips import V5E
from ratchet.wiring import RepositoryJudge
from tests.loop.stage import Stage

TURNS, REPLAYS = 3, 5
PLAIN: dict[str, Callable[[str], object]] = {
    "open": lambda path: open(path, "rb").close(),
    "read": lambda path: Path(path).read_bytes(),
    "state": os.lstat,
    "exists": os.path.lexists,
    "is_file": os.path.isfile,
    "is_folder": os.path.isdir,
    "names": os.listdir,
}
"""What a call would be without the opener, of those that change nothing."""


def plain_take(source: str, target: str) -> None:
    with open(source, "rb") as file:
        data = file.read()
    hashlib.sha256(data)
    Path(target).write_bytes(data)


def opened_take(source: str, target: str) -> None:
    with open(source, "rb") as file:
        Root(Path(target).parent).take(file, Path(target).name)


def opened_write(source: str, target: str) -> None:
    Root(Path(target).parent).write(Path(target).name, Path(source).read_bytes(), flush=False)


WRITES: dict[str, tuple[Callable[[str, str], object], Callable[[str, str], object]]] = {
    "take": (opened_take, plain_take),
    "write": (opened_write, lambda source, target: Path(target).write_bytes(Path(source).read_bytes())),
    "make_folder": (
        lambda _source, target: Root(Path(target).parent).make_folder(Path(target).name),
        lambda _source, target: os.makedirs(target, exist_ok=True),
    ),
}
"""Those that write, with the opener and without: from a file of as many bytes."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """One call of the opener."""

    path: str
    size: int
    """Bytes that it writes."""
    seconds: float


class Watched:
    """Counts the outermost calls of the opener."""

    def __init__(self) -> None:
        self.calls: dict[str, list[Call]] = defaultdict(list)
        """By method."""
        self._inside = False

    def wrapped(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(root: Root, *arguments: Any, **options: Any) -> Any:
            if self._inside:
                return method(root, *arguments, **options)
            self._inside, began = True, time.perf_counter()
            try:
                return method(root, *arguments, **options)
            finally:
                self._inside = False
                seconds = time.perf_counter() - began
                path = str(root.path / os.fspath(arguments[0])) if arguments and name in PLAIN else ""
                self.calls[name].append(Call(path=path, size=_size(name, arguments), seconds=seconds))

        return call

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        names = [name for name, value in vars(Root).items() if callable(value) and not name.startswith("_")]
        before = {name: getattr(Root, name) for name in names}
        for name, method in before.items():
            setattr(Root, name, self.wrapped(name, method))
        of = paths.of

        def found(path: str | os.PathLike[str]) -> tuple[Root, str]:
            began = time.perf_counter()
            try:
                return of(path)
            finally:
                seconds = time.perf_counter() - began
                self.calls["(the root of a path)"].append(Call(path="", size=0, seconds=seconds))

        paths.of = found
        try:
            yield
        finally:
            paths.of = of
            for name, method in before.items():
                setattr(Root, name, method)


def _size(name: str, arguments: tuple[Any, ...]) -> int:
    if name == "write":
        return len(arguments[1])
    return os.fstat(arguments[0].fileno()).st_size if name == "take" else 0


def turn(stage: Stage) -> tuple[Watched, float]:
    """The calls of one turn, and its seconds."""
    from prepare import judge

    watched, began = Watched(), time.perf_counter()
    with watched.watching():
        judged = RepositoryJudge.modelling(stage.root, judge, V5E)
        run_experiment(Idea(message="an idea"), root=stage.root, kernel=Path(stage.kernel), judge=judged)
    return watched, time.perf_counter() - began


def again(name: str, calls: list[Call], folder: Path) -> tuple[float, float]:
    """Seconds of the same calls by the opener and by plain functions."""
    if name in WRITES:
        sources = []
        for number, call in enumerate(calls):
            sources.append((str(folder / f"{number}"), str(folder / f"{number}.{name}")))
            Path(sources[-1][0]).write_bytes(bytes(call.size))
        opener, plain = WRITES[name]
        return _least([partial(opener, *one) for one in sources]), _least([partial(plain, *one) for one in sources])
    there = [Path(call.path) for call in calls if call.path and os.path.lexists(call.path)]
    opened = [partial(getattr(Root(path.parent), name), path.name) for path in there]
    return _least(opened), _least([partial(PLAIN[name], str(path)) for path in there])


def _least(calls: list[Callable[[], Any]]) -> float:
    return min(_seconds(calls) for _ in range(REPLAYS))


def _seconds(calls: list[Callable[[], Any]]) -> float:
    began = time.perf_counter()
    for call in calls:
        with contextlib.suppress(OSError, ValueError):
            done = call()
            if hasattr(done, "close"):
                done.close()
    return time.perf_counter() - began


def main() -> None:
    parser = command(__doc__)
    parser.add_argument("--kernel", type=Path, default=ROOT / "examples" / "naive_attention.py")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        stage = Stage.new(Path(folder, "repository"))
        (stage.root / ".gitignore").write_text("hlo_dumps/\nprofile_data/\n.ratchet/\n")
        text = options.kernel.read_text()
        stage.write(text)
        stage.git("commit", "-q", "-a", "-m", "the kernel")
        turn(stage)  # freezes the problem, and leaves references
        found = []
        for number in range(TURNS):
            stage.write(f"{text}\n# {number}\n")
            found.append(turn(stage))
            say(f"turn {number + 1} of {TURNS}")
        watched, whole = min(found, key=lambda one: sum(call.seconds for of in one[0].calls.values() for call in of))
        rows: list[dict[str, Any]] = []
        scratch = Path(folder, "again")
        scratch.mkdir()
        for name, calls in sorted(watched.calls.items()):
            row = {"call": name, "times": len(calls), "ms": 1e3 * sum(one.seconds for one in calls)}
            price = {"price, ms": row["ms"]} if name.startswith("(") else {}  # without the opener there is no such call
            if name in PLAIN or name in WRITES:
                opener, plain = again(name, calls, scratch)
                price = {"again, ms": 1e3 * opener, "plain, ms": 1e3 * plain, "price, ms": 1e3 * (opener - plain)}
            rows.append(row | price)
    numbers = ("times", "ms", "again, ms", "plain, ms", "price, ms")
    total: dict[str, Any] = {name: sum(row.get(name, 0) for row in rows) for name in numbers}
    tables = {"the opener in a turn": [*rows, {"call": "together", **total}], "about": [{"turn, s": whole}]}
    show_all(tables, json_file=options.json)


if __name__ == "__main__":
    main()
