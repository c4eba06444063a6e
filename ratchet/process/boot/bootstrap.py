"""Makes a private environment from ``requirements.lock``: in a clone, ``.venv``. Standard library only.

A copy of the lock file inside the environment says that it is complete; it is written last.
"""

from __future__ import annotations

import contextlib
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


def make(venv: Path, lock: Path) -> None:
    """Create or update ``venv``."""
    if not (venv / "bin" / "python").exists():
        say(f"making {venv.name} with Python {platform.python_version()}")
        call(sys.executable, "-m", "venv", "--without-pip", venv)  # pip only where uv has to be fetched
    uv = find_uv(venv)
    say("installing the locked packages (about 2 GB on disk; only the first time)")
    start = time.monotonic()
    call(uv, "pip", "sync", "-q", "--require-hashes", "--python", venv / "bin" / "python", lock)
    say(f"done in {time.monotonic() - start:.0f} s")
    mark = venv / "requirements.lock.new"
    shutil.copyfile(lock, mark)
    mark.rename(venv / "requirements.lock")


def prewarm(venv: Path) -> None:
    """Prepare the judge's own environment for its first verdict, which does without where that fails."""
    say("compiling their code, and reading it for the judge's seal")
    start, python = Path(__file__).with_name("start.py"), (venv / "bin" / "python").resolve()
    kept = {
        name: os.environ[name]
        for name in ("HOME", "PATH", "XDG_CACHE_HOME", "RATCHET_ENVIRONMENT")
        if name in os.environ
    }
    with contextlib.suppress(OSError):
        command = [str(python), "-I", "-S", str(start), "prewarm"]
        subprocess.run(command, env=kept, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def main(venv: Path, lock: Path) -> int:
    """Make the environment and say what keeps it from being made; returns the exit code."""
    if (platform.system(), platform.machine()) != WHEEL_PLATFORM:
        say(
            f"the TPU compiler has no build for {platform.system()} {platform.machine()}: "
            "kernels cannot be judged here; `log`, `show` and `verify` work"
        )
    if shutil.disk_usage(venv.parent).free < NEEDED_BYTES and not venv.exists():
        say(f"less than {NEEDED_BYTES >> 30} GiB free at {venv.parent}; free some space and run again")
        return FAILED
    try:
        return _make_alone(venv, lock)
    except (subprocess.CalledProcessError, OSError) as error:
        what = " ".join(map(str, error.cmd[:4])) if isinstance(error, subprocess.CalledProcessError) else str(error)
        say(f"failed: {what}. Is a package index reachable, and is python3-venv installed? Run again to go on.")
        return FAILED


def _make_alone(venv: Path, lock: Path) -> int:
    """Make the environment unless another process just did."""
    with venv.with_name(f"{venv.name}.lock").open("w") as guard:
        try:
            fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another process is making the environment; waiting for it")
            fcntl.flock(guard, fcntl.LOCK_EX)
        done = venv / "requirements.lock"
        if done.exists() and done.read_bytes() == lock.read_bytes():
            return 0
        make(venv, lock)
    return 0


if __name__ == "__main__":
    os.umask(0o022)
    top = Path(sys.argv[1])
    code = main(top / ".venv", top / "requirements.lock")
    if not code:
        prewarm(top / ".venv")
    sys.exit(code)
