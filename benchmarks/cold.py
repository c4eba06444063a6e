"""Seconds from ``git clone`` to the first verdict, by part, and what the same command takes from then on.

    python -m benchmarks.cold [--json FILE]

In a throwaway clone of HEAD with an environment of its own. Packages come from where ``pip`` or ``uv`` finds them: from
a cache of this machine if there is one, else they are downloaded first. The code of packages is compiled once for an
environment, and all of it is read for the judge's seal; from then on only what changed. The verdict is that of the
README's first command; its steps are the rows that begin with two spaces, and the longer ones go on side by side. Last
comes that command alone in another fresh clone, where it does all of this.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.lib.command import IDENTITY, command
from benchmarks.lib.sources import ROOT
from benchmarks.lib.table import show

KERNEL = "examples/first.py"
FILL = "from ratchet import boot, bytecode; bytecode.fill(boot.packages())"
SEAL = "from ratchet.home import PACKAGE_ROOT; from ratchet.judge.seal import seal; seal(PACKAGE_ROOT)"
COMMAND_LINE = "ratchet.cli"
LEAST_S = 0.05
"""Of a step that has a row."""


def timed(*arguments: str, cwd: Path) -> tuple[float, str]:
    """Wall seconds of a command, and what it printed."""
    start = time.monotonic()
    done = subprocess.run(arguments, cwd=cwd, env=os.environ | IDENTITY, check=True, capture_output=True, text=True)
    return time.monotonic() - start, done.stdout


def measured(folder: Path) -> list[dict[str, Any]]:
    """The rows."""
    clone = folder / "clone"
    cloned, _ = timed("git", "clone", "-q", str(ROOT), str(clone), cwd=folder)
    first, _ = timed("./ratchet.sh", "--help", cwd=clone)
    again, _ = timed("./ratchet.sh", "--help", cwd=clone)
    python = str(clone / ".venv" / "bin" / "python")
    compiled, _ = timed(python, "-c", FILL, cwd=clone)
    sealed, _ = timed(python, "-c", SEAL, cwd=clone)
    judged, printed = timed("./ratchet.sh", "--kernel", KERNEL, "baseline", "--json", cwd=clone)
    later, _ = timed(python, "prepare.py", "--kernel", KERNEL, "--fresh", cwd=clone)
    document = json.loads(printed)
    steps = {f"  {step['name']}": step["seconds"] for step in document["verdict"]["steps"]}
    parts = {"git clone": cloned, "environment": first - again, "compiled code of packages": compiled, "seal": sealed}
    parts |= {"first verdict": judged} | {name: seconds for name, seconds in steps.items() if seconds >= LEAST_S}
    parts |= {"all that, one after the other": cloned + first - again + compiled + sealed + judged}
    other = folder / "other"
    timed("git", "clone", "-q", str(ROOT), str(other), cwd=folder)
    parts["the first command in a fresh clone"], _ = timed("./ratchet.sh", "--kernel", KERNEL, "baseline", cwd=other)
    parts |= {"the same verdict again, all checked": later, "imports of the command line": imports(clone)}
    return [{"part": part, "seconds": seconds} for part, seconds in parts.items()]


def imports(clone: Path) -> float:
    """Of the command line, as ``./ratchet.sh`` starts it, by Python's own account."""
    python = (clone / ".venv" / "bin" / "python").resolve()
    arguments = [python, "-X", "importtime", "-I", "-S", "ratchet/start.py", "ratchet", "--help"]
    said = subprocess.run(arguments, cwd=clone, check=True, capture_output=True, text=True).stderr
    lines = [line.split("|") for line in said.splitlines() if line.split("|")[-1].strip() == COMMAND_LINE]
    return float(lines[0][1]) / 1e6


def main() -> None:
    options = command(__doc__).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        show("seconds from git clone to the first verdict", measured(Path(folder)), json_file=options.json)


if __name__ == "__main__":
    main()
