"""``setup``: the judge's own environment, and others beside it for another JAX. Standard library only.

An environment with another JAX is made by pip from a lock file with hashes. The first time there is none: what the
package index gives is trusted once, and its hashes are kept beside the environment. Every later set-up installs those
files or fails. A lock file of the user's takes the place of that trust.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ratchet.commands.options import text_option
from ratchet.process.boot import bootstrap, home
from ratchet.process.environments import LOCK, PRIVATE, Version, environment_of, folder_of, parse
from ratchet.values.status import Refusal, Status

_PIP = ("-m", "pip", "--disable-pip-version-check", "install", "-q")


def setup_options(parser: argparse.ArgumentParser) -> None:
    """Which environment."""
    text_option(parser, "--jax", "VERSION", "one with this JAX beside it: 0.12.0.1, or 0.12.0.1+libtpu0.0.52")
    text_option(parser, "--python", "PATH", "the Python that --jax gets; default: this")
    parser.add_argument("--lock", type=Path, metavar="FILE", help="the packages of --jax, each with its hash")


def setup_command(options: argparse.Namespace) -> int:
    """Make the environment unless it is there, and say where it is."""
    if options.jax:
        folder = make(options.jax, python=options.python, lock=options.lock)
        print(f"the environment with jax {options.jax} is {folder}")
        return Status.PASS.exit_code
    if options.lock or options.python:
        raise Refusal(Status.USAGE, "--lock and --python are for the environment that --jax names")
    own = home.environment()
    if own is None:
        raise Refusal(Status.INFRASTRUCTURE, PRIVATE)
    if not home.ready(own):
        own.parent.mkdir(parents=True, exist_ok=True)
        fetched = own.with_name(f"{own.name}.packages")
        if shutil.which("uv") is None:  # one of our own is fetched, whose downloads nobody else would look for
            os.environ.setdefault("UV_CACHE_DIR", str(fetched))
        if code := bootstrap.main(own, home.LOCK):
            return code
        shutil.rmtree(fetched, ignore_errors=True)
        bootstrap.prewarm(own)
    print(f"the judge's environment is {own}")
    return Status.PASS.exit_code


def of_repository(options: argparse.Namespace) -> str:
    """The JAX of the user's repository, ``.venv`` in its top, for a command whose options ask for that by default.

    ``""`` where that is the judge's own, or where there is no environment with it, which is said.
    """
    top = home.repository(Path.cwd()) if home.INSTALLED and getattr(options, "of_repository", False) else None
    found = sorted(top.glob(".venv/lib/python*/site-packages/jax-[0-9]*.dist-info")) if top else []
    version = found[0].stem.partition("-")[2] if found else ""
    try:
        return "" if not version or environment_of(version) == home.environment() else version
    except Refusal as refusal:
        print(
            f"this repository has jax {version}, and here the judge's own compiles: {refusal.message}", file=sys.stderr
        )
        return ""


def go_on_under(text: str, arguments: Sequence[str]) -> None:
    """Become the process that runs the same command with the packages of a version of JAX; returns where this is one.

    Raises:
      Refusal: as ``environment_of``.
    """
    folder = environment_of(text)
    if Path(sys.prefix).resolve() == folder.resolve():
        return
    words = iter(arguments)
    left = []
    for word in words:
        if word == "--jax":
            next(words)
        elif not word.startswith("--jax="):
            left.append(word)
    python = os.path.realpath(folder / "bin" / "python")
    sys.stdout.flush()
    command = [python, "-I", "-S", str(home.START), "under", str(folder), *left]
    os.execve(python, command, home.judges_environment(dict(os.environ), folder))


def make(text: str, *, python: str, lock: Path | None) -> Path:
    """Make the environment of a version of JAX unless it is there; returns its folder.

    Args:
        text: the version.
        python: the Python that it gets; ``""`` for this one.
        lock: a requirements file with the hash of every package; None for the one that is kept, if any.

    Raises:
      Refusal: ``USAGE`` for what is no version, or a lock of another; ``NOT_FOUND`` for no such lock;
        ``INFRASTRUCTURE`` where it cannot be made, as for a file whose hash is another.
    """
    version = parse(text)
    folder = folder_of(version)
    folder.parent.mkdir(parents=True, exist_ok=True)
    kept = folder.with_name(f"{folder.name}.requirements.txt")
    given = None if lock is None else _read(lock, version)
    with folder.with_name(f"{folder.name}.lock").open("w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        wanted = given or (kept.read_text() if kept.is_file() else None)
        made = folder / LOCK
        if wanted is not None and made.is_file() and made.read_text() == wanted:
            return folder
        new = folder.with_name(f"{folder.name}.new")
        try:
            installed = _install(new, version, python, wanted, kept)
        except (subprocess.CalledProcessError, OSError) as error:
            raise _failed(version, error, (lock or kept) if wanted else None) from None
        (new / LOCK).write_text(installed)
        shutil.rmtree(folder, ignore_errors=True)
        kept.write_text(installed)
        new.rename(folder)
    return folder


def _read(lock: Path, version: Version) -> str:
    try:
        text = lock.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Refusal(Status.NOT_FOUND, f"the lock {lock} cannot be read: {error}") from None
    for name, number in (("jax", version.jax), ("libtpu", version.libtpu)):
        if number and not re.search(rf"(?m)^{name}(\[[^\]]*\])?=={re.escape(number)}(?![\w.])", text):
            raise Refusal(Status.USAGE, f"the lock {lock} has no line {name}=={number}: wanted one of jax {version}")
    return text


def _install(folder: Path, version: Version, python: str, lock: str | None, kept: Path) -> str:
    """Returns the lock of what was installed."""
    bootstrap.call(python or sys.executable, "-m", "venv", "--clear", folder)
    own = folder / "bin" / "python"
    if lock is None:
        bootstrap.say(f"no hashes are kept for jax {version}: what the package index has now is trusted, this once")
        bootstrap.say(f"the hashes of it go to {kept}; commit a copy, and `--lock` installs the same elsewhere")
    bootstrap.say(f"installing jax {version} with its libtpu (about 1.2 GB on disk; only the first time)")
    if lock is not None:
        requirements = folder / "requirements.txt"
        requirements.write_text(lock)
        _pip(own, "--require-hashes", "-r", str(requirements))
        return lock
    report = folder / "report.json"
    _pip(own, "--report", str(report), *version.requirements)
    return "\n".join(sorted(_lines(json.loads(report.read_text())), key=str.lower)) + "\n"


def _pip(python: Path, *wanted: str) -> None:
    """Raises CalledProcessError with what pip said."""
    command = [str(python), *_PIP, *wanted]
    done = subprocess.run(command, stdout=sys.stderr, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise subprocess.CalledProcessError(done.returncode, command, stderr=done.stderr)


def unavailable(said: str) -> str:
    """Why pip found no version, in one line; ``""`` where it says something else."""
    asked = re.search(r"satisfies the requirement ([\w.-]+)(?:\[[\w,-]+\])?==([\w.]+) \(from versions: ([^)]*)\)", said)
    if asked is None:
        return ""
    name, number, there = asked[1], asked[2], asked[3]
    if other := re.search(rf"[ ;]{re.escape(number)} Requires-Python ([^\s;]+)", said):
        return f"{name} {number} needs Python {other[1]}: name one with --python"
    known = [one.strip() for one in there.split(",") if re.fullmatch(r"[0-9.]+", one.strip())]
    if not known:
        return f"the package index has no {name}: is it reachable?"
    place = [int(part) for part in re.findall("[0-9]+", number)]
    before = [one for one in known if [int(part) for part in one.split(".")] < place]
    near = [*before[-1:], *known[len(before) : len(before) + 1]]
    return f"the package index has no {name} {number}, its neighbours are {' and '.join(near)}"


def _lines(report: Mapping[str, Any]) -> Iterator[str]:
    """What pip's report says that it installed, as lines of a requirements file."""
    for package in report["install"]:
        known = package["metadata"]
        hashes = package["download_info"].get("archive_info", {}).get("hashes", {})
        if "sha256" not in hashes:
            raise OSError(f"pip reports no hash of {known['name']}")
        yield f"{known['name']}=={known['version']} --hash=sha256:{hashes['sha256']}"


def _failed(version: Version, error: Exception, lock: Path | None) -> Refusal:
    why: object = error
    if isinstance(error, subprocess.CalledProcessError):
        said = str(error.stderr or "")
        if reason := unavailable(said):
            return Refusal(Status.NOT_FOUND, f"no environment with jax {version}: {reason}")
        last = "".join(said.strip().splitlines()[-1:])[:300]
        why = f"pip ended with exit code {error.returncode}" + (f": {last}" if last else "")
    message = f"no environment with jax {version} could be made ({why})"
    if lock is None:
        what = "its packages may need another Python, which --python names"
    else:
        what = f"pip has to find the files that {lock} has the hashes of, for the Python that --python names"
        what += "; to trust other files, give another --lock, or remove that file"
    return Refusal(Status.INFRASTRUCTURE, f"{message}: {what}")
