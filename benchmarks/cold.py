"""Seconds from ``git clone`` to the first verdict, by part, and what the same command takes from then on.

    python -m benchmarks.cold [--json FILE]

In a throwaway clone of HEAD with an environment of its own. Packages come from where ``pip`` or ``uv`` finds them: from
a cache of this machine if there is one, else they are downloaded first. Their code is then compiled, and all of it is
read for the judge's seal; from then on only what changed is. The verdict is that of the README's first command; its
steps are the rows that begin with two spaces, and the longer ones go on side by side. Last comes that command alone in
another fresh clone, where it does all of this.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.lib.command import command
from benchmarks.lib.sources import ROOT
from benchmarks.lib.table import show

KERNEL = "examples/first.py"
MAKE = """
import sys
from pathlib import Path
sys.path.insert(0, "ratchet/process/boot")
import bootstrap
sys.exit(bootstrap.main(Path(".venv").absolute(), Path("requirements.lock")))
"""
IDENTITY = {f"GIT_{who}_{what}": "benchmark" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
COMMAND_LINE = "ratchet.commands.cli"
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
    base = os.path.realpath(sys.executable)
    made, _ = timed(base, "-I", "-c", MAKE, cwd=clone)
    settled, _ = timed(base, "-I", "-S", "ratchet/process/boot/start.py", "settle", cwd=clone)
    python = str(clone / ".venv" / "bin" / "python")
    judged, printed = timed("./ratchet.sh", "--kernel", KERNEL, "baseline", "--json", cwd=clone)
    later, _ = timed(python, "prepare.py", "--kernel", KERNEL, "--fresh", cwd=clone)
    document = json.loads(printed)
    steps = {f"  {step['name']}": step["seconds"] for step in document["verdict"]["steps"]}
    parts = {"git clone": cloned, "environment": made, "code of packages compiled and read": settled}
    parts |= {"first verdict": judged} | {name: seconds for name, seconds in steps.items() if seconds >= LEAST_S}
    parts |= {"all that, one after the other": cloned + made + settled + judged}
    other = folder / "other"
    timed("git", "clone", "-q", str(ROOT), str(other), cwd=folder)
    parts["the first command in a fresh clone"], _ = timed("./ratchet.sh", "--kernel", KERNEL, "baseline", cwd=other)
    parts |= {"the same verdict again, all checked": later, "imports of the command line": imports(clone)}
    return [{"part": part, "seconds": seconds} for part, seconds in parts.items()]


def imports(clone: Path) -> float:
    """Of the command line, as ``./ratchet.sh`` starts it, by Python's own account."""
    python = (clone / ".venv" / "bin" / "python").resolve()
    arguments = [python, "-X", "importtime", "-I", "-S", "ratchet/process/boot/start.py", "ratchet", "--help"]
    said = subprocess.run(arguments, cwd=clone, check=True, capture_output=True, text=True).stderr
    lines = [line.split("|") for line in said.splitlines() if line.split("|")[-1].strip() == COMMAND_LINE]
    return float(lines[0][1]) / 1e6


def main() -> None:
    options = command(__doc__).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        show("seconds from git clone to the first verdict", measured(Path(folder)), json_file=options.json)


if __name__ == "__main__":
    main()
