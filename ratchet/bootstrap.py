"""Makes the private environment in ``.venv`` from ``requirements.lock``. Standard library only.

A copy of the lock file inside the environment says that it is complete; it is written last.
"""

from __future__ import annotations

import fcntl
import os
import platform
import shutil
import subprocess
import sys
import time
from pathlib import Path

FAILED = 69
NEEDED_BYTES = 3 << 30
WHEEL_PLATFORM = ("Linux", "x86_64")


def say(text: str) -> None:
    print(f"set-up: {text}", file=sys.stderr, flush=True)


def call(*command: str | Path) -> None:
    """Run a command with its output on standard error."""
    subprocess.run([str(part) for part in command], check=True, stdout=sys.stderr)


def find_uv(venv: Path) -> Path | str:
    """uv from the PATH, else one of our own beside the environment's packages."""
    path = shutil.which("uv")
    if path:
        return path
    own = venv / "uv"
    if not (own / "bin" / "uv").exists():
        say("fetching uv")
        if not (venv / "bin" / "pip").exists():
            call(venv / "bin" / "python", "-m", "ensurepip")
        call(
            venv / "bin" / "python", "-m", "pip", "install", "-q", "--disable-pip-version-check", "--target", own, "uv"
        )
    return own / "bin" / "uv"


def make(root: Path) -> None:
    """Create or update ``root/.venv``."""
    venv, lock = root / ".venv", root / "requirements.lock"
    if not (venv / "bin" / "python").exists():
        say(f"making .venv with Python {platform.python_version()}")
        call(sys.executable, "-m", "venv", "--without-pip", venv)  # pip only where uv has to be fetched
    uv = find_uv(venv)
    say("installing the locked packages (about 1.6 GB on disk; only the first time)")
    start = time.monotonic()
    call(uv, "pip", "sync", "-q", "--require-hashes", "--python", venv / "bin" / "python", lock)
    say(f"done in {time.monotonic() - start:.0f} s")
    mark = venv / "requirements.lock.new"
    shutil.copyfile(lock, mark)
    mark.rename(venv / "requirements.lock")


def main(root: Path) -> int:
    """Make the environment and say what keeps it from being made; returns the exit code."""
    if (platform.system(), platform.machine()) != WHEEL_PLATFORM:
        say(
            f"the TPU compiler has no build for {platform.system()} {platform.machine()}: "
            "kernels cannot be judged here; `log`, `show` and `verify` work"
        )
    if shutil.disk_usage(root).free < NEEDED_BYTES and not (root / ".venv").exists():
        say(f"less than {NEEDED_BYTES >> 30} GiB free at {root}; free some space and run again")
        return FAILED
    try:
        return _make_alone(root)
    except (subprocess.CalledProcessError, OSError) as error:
        what = " ".join(map(str, error.cmd[:4])) if isinstance(error, subprocess.CalledProcessError) else str(error)
        say(f"failed: {what}. Is a package index reachable, and is python3-venv installed? Run again to go on.")
        return FAILED


def _make_alone(root: Path) -> int:
    """Make the environment unless another process just did."""
    with (root / ".venv.lock").open("w") as guard:
        try:
            fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another process is making the environment; waiting for it")
            fcntl.flock(guard, fcntl.LOCK_EX)
        done = root / ".venv" / "requirements.lock"
        if done.exists() and done.read_bytes() == (root / "requirements.lock").read_bytes():
            return 0
        make(root)
    return 0


if __name__ == "__main__":
    os.umask(0o022)
    sys.exit(main(Path(sys.argv[1])))
