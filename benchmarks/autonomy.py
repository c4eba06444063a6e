"""How far `ratchet advise` gets without anybody: the first advice is tried, turn after turn, from a naive kernel.

    python -m benchmarks.autonomy [--turns 40] [--from FILE]… [--keep FOLDER] [--json FILE]

Everything goes through the public command line, in a throwaway repository: `advise --apply 1`, then one experiment,
which is judged, kept or reverted. What was tried and lost is in its ledger, so it is not advised again. It ends where
there is no advice left. Without --from: the naive attention kernel, and the first versions of three examples. The floor
is what the roofline allows: compulsory FLOPs and bytes at the chip's peaks. Most of the time goes into references in
float64, once for each problem: --keep leaves them, and what is known of programs, in FOLDER for the next run.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.lib.command import command
from benchmarks.lib.sources import ROOT
from benchmarks.lib.table import show_all

FIRST = ROOT / "benchmarks" / "data" / "autonomy"
"""Examples as they were before anybody improved them."""
STARTS = (
    ROOT / "examples" / "naive_attention.py",
    FIRST / "layernorm.py",
    FIRST / "matmul.py",
    FIRST / "adam.py",
)
TREE = ("prepare.py", "ratchet", "ratchet.sh", "environment.sh", "pyproject.toml", "requirements.lock", ".gitignore")
KERNEL = "kernel.py"


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One advice that was followed."""

    title: str
    predicted_ms: float
    confidence: float
    got_ms: float | None
    """None where it was refused."""
    status: str
    kept: bool


@dataclass(frozen=True, kw_only=True)
class Course:
    """All turns from one start."""

    start: str
    first_ms: float
    floor_ms: float
    turns: tuple[Turn, ...]

    @property
    def last_ms(self) -> float:
        return min([self.first_ms, *(turn.got_ms for turn in self.turns if turn.kept and turn.got_ms)])

    @property
    def way(self) -> float:
        """Which share of the way from the start to the floor it made."""
        return (self.first_ms - self.last_ms) / (self.first_ms - self.floor_ms)


def repository(root: Path, source: bytes) -> Path:
    """A repository with this tree in it and the kernel file to improve. What the judge left in its place stays."""
    known = root / ".ratchet"
    aside = known.rename(root.with_name(f"{root.name}.known")) if known.is_dir() else None
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    if aside is not None:
        aside.rename(known)
    for name in TREE:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(ROOT / name, root / name)
    (root / KERNEL).write_bytes(source)
    for arguments in (
        ["init", "-q", "-b", "main"],
        ["config", "user.name", "benchmark"],
        ["config", "user.email", "benchmark@example.invalid"],
        ["add", "."],
        ["commit", "-q", "-m", "first"],
    ):
        subprocess.run(["git", *arguments], cwd=root, check=True)
    if (ROOT / ".venv").exists():  # the private environment, which is made on first use otherwise
        (root / ".venv").symlink_to((ROOT / ".venv").resolve())
        (root / ".git" / "info" / "exclude").write_text(".venv\n")
    return root


def asked(root: Path, *words: str) -> dict[str, Any]:
    """The JSON document of one command."""
    done = subprocess.run(
        ["./ratchet.sh", *words], cwd=root, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    try:
        document: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        raise RuntimeError(f"{words[0]} ended with {done.returncode}: {done.stderr[-500:]}") from None
    return document


def follow(root: Path, turns: int) -> Iterator[Turn]:
    """The first advice, tried; until none is left."""
    for _ in range(turns):
        document = asked(root, "advise", KERNEL, "--apply", "1", "--json")
        if not document.get("advice"):
            return
        (advice,) = document["advice"]
        judged = asked(root, "run", "--json", "--kernel", KERNEL, "--", advice["message"])
        if not judged["outcome"].get("decision"):
            raise RuntimeError(f"{advice['title']} was not judged: {judged['outcome']}")
        score = (judged.get("verdict") or {}).get("score") or {}
        yield Turn(
            title=advice["title"],
            predicted_ms=advice["predicted_ms"],
            confidence=advice["confidence"],
            got_ms=score.get("latency_ms"),
            status=judged["outcome"]["status"],
            kept=judged["outcome"]["decision"] == "kept",
        )


def course(start: Path, turns: int, keep: Path | None) -> Course:
    """All turns from one kernel file."""
    with tempfile.TemporaryDirectory(prefix="autonomy-") as folder:
        root = repository((keep or Path(folder)).resolve() / start.stem, start.read_bytes())
        judged = asked(root, "run", "--json", "--kernel", KERNEL, "--", "baseline")
        score = (judged.get("verdict") or {}).get("score")
        if not score:
            raise RuntimeError(f"{start} has no score: {judged['outcome']}")
        made: list[Turn] = []
        for turn in follow(root, turns):
            made.append(turn)
            got = f"{turn.got_ms:.4f} ms" if turn.got_ms else turn.status
            print(f"{start.name} {len(made)}: {turn.title}: {got}{', kept' if turn.kept else ''}", flush=True)
        return Course(
            start=start.name,
            first_ms=score["latency_ms"],
            floor_ms=score["latency_ms"] * score["util_pct"] / 100,
            turns=tuple(made),
        )


def tables(courses: Sequence[Course]) -> dict[str, list[dict[str, Any]]]:
    """How far each got, and every turn."""
    ends = [
        {
            "kernel": one.start,
            "first ms": one.first_ms,
            "floor ms": one.floor_ms,
            "turns": len(one.turns),
            "kept": sum(turn.kept for turn in one.turns),
            "last ms": one.last_ms,
            "of the way to the floor": f"{one.way:.0%}",
        }
        for one in courses
    ]
    turns = {
        f"Turns from {one.start}": [
            {
                "turn": number,
                "advice": turn.title,
                "predicted ms": turn.predicted_ms,
                "confidence": f"{turn.confidence:.0%}",
                "got ms": turn.got_ms,
                "": "kept" if turn.kept else turn.status,
            }
            for number, turn in enumerate(one.turns, 1)
        ]
        for one in courses
    }
    return {"How far it gets": ends, **turns}


def main() -> None:
    """Follow advice from each start."""
    parser = command(__doc__)
    parser.add_argument("--turns", type=int, default=40, metavar="N", help="at most so many from each; default 40")
    parser.add_argument(
        "--from", dest="starts", action="append", type=Path, metavar="FILE", help="begin with this file"
    )
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="where the repositories stay, and are begun anew")
    options = parser.parse_args()
    courses = [course(start, options.turns, options.keep) for start in options.starts or STARTS]
    show_all(tables(courses), json_file=options.json)


if __name__ == "__main__":
    main()
