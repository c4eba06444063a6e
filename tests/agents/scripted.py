"""An agent without a model: the n-th turn does what the n-th entry of a script says.

``python scripted.py SCRIPT``: a JSON list of lists of steps, such as ``["write", TEXT]``.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path


def main(script: Path) -> None:
    steps = json.loads(script.read_text())[int(os.environ["RATCHET_TURN"]) - 1]
    print(Path(os.environ["RATCHET_BRIEF"]).read_text()[:40], flush=True)
    for verb, *words in steps:
        print(verb, flush=True)
        STEPS[verb](*words)


def note(text: str) -> None:
    Path(os.environ["RATCHET_MESSAGE"]).write_text(text)


def write(text: str) -> None:
    Path(os.environ["RATCHET_KERNEL"]).write_text(text)


def beside(name: str, text: str) -> None:
    """Another file, and whether that could be written: the permissions are no wall for root."""
    try:
        Path(name).write_text(text)
    except OSError as error:
        print(f"refused: {error.strerror}", flush=True)


def allow(name: str) -> None:
    os.chmod(name, 0o777)


def instead(target: str) -> None:
    """A link in place of the kernel."""
    kernel = Path(os.environ["RATCHET_KERNEL"])
    try:
        kernel.unlink()
        kernel.symlink_to(target)
    except OSError as error:
        print(f"refused: {error.strerror}", flush=True)


def git(*words: str) -> None:
    subprocess.run(["git", *words], check=False)


def hang() -> None:
    """With a process that outlives its parent and ignores what can be ignored."""
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(3600)"
    left = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    print(f"left {left.pid}", flush=True)
    time.sleep(3600)


def leave(code: str) -> None:
    sys.exit(int(code))


def crash() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


STEPS = {
    "note": note, "write": write, "beside": beside, "allow": allow, "instead": instead, "git": git, "hang": hang,
    "leave": leave, "crash": crash,
}  # fmt: skip


if __name__ == "__main__":
    main(Path(sys.argv[1]))
