"""Writes ``requirements.lock`` anew: ``python -m tools.lock [options of uv pip compile]``.

All extras of pyproject.toml except ``UNLOCKED``, for every platform, with hashes and without addresses. Versions that
are in the lock already stay, unless ``--upgrade`` or ``--upgrade-package NAME`` is given. Needs uv and the network.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

from ratchet.process.boot.bootstrap import find_uv
from tools.documents import ROOT

LOCK = "requirements.lock"
UNLOCKED = ("peers",)
"""Extras that the lock leaves out: kernels of others, for benchmarks."""
OPTIONS = ("--universal", "--generate-hashes", "--no-header", "--no-emit-index-url")


def extras() -> list[str]:
    """The extras that the lock holds, in the order of pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [name for name in project["optional-dependencies"] if name not in UNLOCKED]


def oldest_python() -> str:
    """The oldest version of Python that the project runs under, such as ``3.11``."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project["requires-python"]).removeprefix(">=")


def command(uv: str | Path, given: Sequence[str] = ()) -> list[str]:
    """What is run in the root of the repository."""
    chosen = [part for name in extras() for part in ("--extra", name)]
    python = ["--python-version", oldest_python()]
    return [str(uv), "pip", "compile", "-q", *OPTIONS, *python, *chosen, *given, "pyproject.toml", "-o", LOCK]


def main(given: Sequence[str]) -> int:
    done = subprocess.run(command(find_uv(Path(sys.prefix)), given), cwd=ROOT, check=False)
    if done.returncode == 0:
        print(f"{LOCK} is written; ./ratchet.sh installs it when it is run next")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
