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
AS_THEY_ARE = (ROOT / "examples" / "naive_attention.py", ROOT / "examples" / "first.py")
FIRST = {
    "layernorm": "6e4039fa303815cb2d46e042c9600890dcafa6a8",
    "layernorm_backward": "50cdf268e4915b35aac7d4b982165537b755a2ee",
    "matmul": "a9ffb8facfec65e1516b3fc3a87a45b41716248c",
    "int8_matmul": "ffafb2628a28aa434314389dfb48f9abf86aef5d",
    "adam": "953d32013db9b6a6305e8e437be9dd98617a587a",
    "softmax": "a4928ba299686510bc1240155ce171bb91c916a9",
    "rope": "b2c446353d9276a4f429b322b424601abef70f1a",
    "rmsnorm_residual": "78295183c9c1d5cd7727713b9ba9a9215b2b8ffb",
    "cumulative_sum": "3e05f174835e3648b5ba48f1d91bd0eb83a96420",
    "int4_matmul": "83e24fbf10a2d3b5423dc86bc7b65fc3a7c44bc8",
    "rmsnorm_backward": "f6843941925dc46a88e1f591cf25fbbda7ea1e98",
    "int8_projection": "aac3f4940ace14e9ca12c6c72be783c7ef448feb",
    "block_sparse_matmul": "d6a5982e363187b77b9f8c28842f08638d1bad9e",
    "moe_matmul": "54cce95c503c84776880fdd79dee29998d51dd1c",
    "sparse_attention": "5bbce69bc5dc7f806ec4a23f4296c84d6b3a6f75",
}
"""Examples, and the commit in which nobody had improved them yet."""
WRITTEN = ROOT / "benchmarks" / "data" / "first"
"""Kernels as a newcomer writes them, where git has none."""


def starts() -> dict[str, str]:
    """Kernel files by name: two for beginners, and the first versions of others."""
    first = {
        f"{name}.py": subprocess.check_output(["git", "show", f"{commit}:examples/{name}.py"], cwd=ROOT, text=True)
        for name, commit in FIRST.items()
    }
    files = {path.name: path.read_text() for path in (*AS_THEY_ARE, *sorted(WRITTEN.glob("*.py")))}
    return {**files, **first}


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
