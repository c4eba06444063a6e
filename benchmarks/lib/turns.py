"""Experiments in a throwaway repository, through the public command line."""

from __future__ import annotations

import json
import subprocess
from typing import Any

from benchmarks.lib.sources import ROOT
from tests.workspaces import Workspace

Row = dict[str, Any]
KERNEL = "kernel.py"
"""What the kernel file of such a repository is called."""
NAIVE = ROOT / "examples" / "naive_attention.py"
FIRST = {
    "layernorm": "6e4039fa303815cb2d46e042c9600890dcafa6a8",
    "layernorm_backward": "50cdf268e4915b35aac7d4b982165537b755a2ee",
    "matmul": "a9ffb8facfec65e1516b3fc3a87a45b41716248c",
    "int8_matmul": "ffafb2628a28aa434314389dfb48f9abf86aef5d",
    "adam": "953d32013db9b6a6305e8e437be9dd98617a587a",
}
"""Examples, and the commit in which nobody had improved them yet."""
WRITTEN = ROOT / "benchmarks" / "data" / "first"
"""Kernels as a newcomer writes them, where git has none."""


def starts() -> dict[str, str]:
    """Kernel files by name: the naive one, and the first versions of others."""
    first = {
        f"{name}.py": subprocess.check_output(["git", "show", f"{commit}:examples/{name}.py"], cwd=ROOT, text=True)
        for name, commit in FIRST.items()
    }
    written = {path.name: path.read_text() for path in sorted(WRITTEN.glob("*.py"))}
    return {NAIVE.name: NAIVE.read_text(), **first, **written}


def asked(space: Workspace, *words: str) -> Row:
    """The JSON document of one command.

    Raises:
        RuntimeError: it printed none.
    """
    done = space.ratchet(*words)
    try:
        document: Row = json.loads(done.stdout)
    except ValueError:
        raise RuntimeError(f"{words[0]} ended with {done.returncode}: {done.stderr[-500:]}") from None
    return document


def experiment(space: Workspace, message: str, *options: str) -> tuple[Row, Row]:
    """One turn: its outcome, and its score, empty where it has none."""
    judged = asked(space, "run", "--json", *options, "--kernel", KERNEL, "--", message)
    return judged["outcome"], (judged.get("verdict") or {}).get("score") or {}


def word(outcome: Row) -> str:
    """What became of an experiment."""
    return "kept" if outcome["decision"] == "kept" else str(outcome["status"])
