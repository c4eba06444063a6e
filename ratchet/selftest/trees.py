"""Attacks on the tree, each played in a copy of its own: what is planted, and what `./ratchet.sh` then does."""

from __future__ import annotations

import contextlib
import importlib.machinery
import os
import py_compile
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ratchet.exam.problem import array_file
from ratchet.process import key
from ratchet.process.sandbox import standby, system
from ratchet.selftest.corpus import Planted, trial
from ratchet.values.status import Refusal, Status
from ratchet.values.trial import NO_EFFECT, Trial

KEPT = ("prepare.py", "ratchet", "ratchet.sh", "environment.sh", "pyproject.toml", "requirements.lock")
MARK = "PLANTED CODE RAN"
"""What planted code prints."""
SECONDS = 240
HANGS = "HANGS"
OUTSIDE = "CHANGED OUTSIDE"
"""What is outside of the repository is another than before."""


def new_tree(root: Path, target: Path, kernel: str) -> None:
    """A repository with one commit: the judge's files of ``root`` and a kernel. Its environment is a link to this one.

    Raises:
      OSError, subprocess.CalledProcessError: it cannot be made.
    """
    target.mkdir(parents=True)
    for name in KEPT:
        if (root / name).is_dir():
            shutil.copytree(root / name, target / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(root / name, target / name)
    (target / ".gitignore").write_text("/.venv\n/.ratchet\n")
    (target / ".venv").symlink_to(sys.prefix)
    (target / "kernel.py").write_text(kernel)
    _git(target, "init", "-q", "-b", "main")
    for name, value in (("user.name", "Self Test"), ("user.email", "selftest@example.invalid")):
        _git(target, "config", name, value)
    _git(target, "add", ".")
    _git(target, "commit", "-q", "-m", "first")


def _git(tree: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=tree, check=True, capture_output=True, stdin=subprocess.DEVNULL)


def with_history(clean: Path, target: Path) -> None:
    """A copy of the ``clean`` tree after its first experiment.

    Raises:
      Refusal: ``INFRASTRUCTURE`` where that does not pass.
    """
    shutil.copytree(clean, target, symlinks=True)
    got, said = _run(target, ("baseline",), {})
    if got != Status.PASS.name:
        raise Refusal(Status.INFRASTRUCTURE, f"the first experiment of an untouched tree: {got}, {_last(said):.200}")


def play(attack: Planted, clean: Path, folder: Path) -> Trial:
    """Plant an attack in a copy of the ``clean`` tree and run what it names there. ``folder`` is new and its own."""
    start = time.monotonic()
    tree = folder / "tree"
    shutil.copytree(clean, tree, symlinks=True)
    outside = _outside(folder / "outside")
    plant(attack, tree)
    before = _seen(outside)
    environment = {name: _filled(value, _places(tree)) for name, value in attack.environment.items()}
    commands = (tuple(_filled(word, _places(tree)) for word in command) for command in attack.runs)
    with _swapping([(tree / one, tree / other) for one, other in attack.swapped.items()]):
        ended = [_run(tree, command, environment, inside=attack.inside) for command in commands]
    (got, said), output = ended[-1], "".join(printed for _, printed in ended)
    if MARK in output:
        got = MARK
    elif _seen(outside) != before:
        got = OUTSIDE
    elif got == Status.PASS.name and NO_EFFECT in attack.expected:
        got = NO_EFFECT
    got = got if attack.said in output else f"{got}, silently"
    return trial(attack, got=got, seen=False, reason=_last(said), seconds=time.monotonic() - start)


def _last(said: str) -> str:
    return next((line for line in reversed(said.splitlines()) if line.strip() and "RESULT:" not in line), "")


def _filled(text: str, places: Mapping[str, str]) -> str:
    for name, value in places.items():
        text = text.replace(f"{{{name}}}", value)
    return text


def _places(tree: Path) -> dict[str, str]:
    suffix = importlib.machinery.EXTENSION_SUFFIXES[0]
    outside = str(tree.with_name("outside"))
    return {"tree": str(tree), "outside": outside, "extension": suffix, "key": str(key.path())}


def _outside(folder: Path) -> Path:
    """A folder of the user's beside the tree: files of old, one that looks left over, and a repository."""
    for name in (".bashrc", "notes.txt", "results.tsv", "references/old.npy", ".git/config"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("the user's\n")
        os.utime(path, (0, 0))
    return folder


def _seen(folder: Path) -> dict[str, tuple[str, int]]:
    """What is in a folder: contents and modes by path."""
    return {
        str(path): (path.read_text(errors="replace") if path.is_file() else "", path.stat().st_mode)
        for path in sorted(folder.rglob("*"))
    }


def plant(attack: Planted, tree: Path) -> None:
    """Change a tree as an attack says."""
    places = _places(tree)
    _write(attack, tree, places)
    for name, text in attack.bytecode.items():
        _plant_bytecode(tree / name, text)
    for name, target in attack.links.items():
        _link(tree / name, _filled(target, places))
    for name, target in attack.hard.items():
        (tree / name).unlink(missing_ok=True)
        os.link(_filled(target, places), tree / name)
    for name in attack.pipes:
        (tree / name).unlink(missing_ok=True)
        os.mkfifo(tree / name)
    if attack.zeroed:
        _zero(tree, attack.zeroed)
    for arguments in attack.git:
        _git(tree, *(_filled(word, places) for word in arguments))


def _write(attack: Planted, tree: Path, places: Mapping[str, str]) -> None:
    for name, text in attack.files.items():
        path = tree / _filled(name, places)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_filled(text, places))
        path.chmod(0o755)
    for name, text in attack.appended.items():
        with (tree / name).open("a") as file:
            file.write(text)
    for name, (old, new) in attack.replaced.items():
        before = (tree / name).read_text()
        if old not in before:
            raise ValueError(f"{attack.name}: there is no {old!r} in {name}")
        (tree / name).write_text(before.replace(old, new, 1))
    for name, mib in attack.large.items():
        with (tree / name).open("ab") as large:
            large.truncate(mib << 20)


@contextlib.contextmanager
def _swapping(pairs: Sequence[tuple[Path, Path]]) -> Iterator[None]:
    """Two names change places, again and again, for as long as the block runs."""
    over = threading.Event()

    def swap() -> None:
        while pairs and not over.wait(0.0005):
            for one, other in pairs:
                with contextlib.suppress(OSError):
                    system.exchange(one, other)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _link(path: Path, target: str) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def _zero(tree: Path, pattern: str) -> None:
    import numpy as np

    for path in tree.glob(pattern):
        array_file.write(path, [np.zeros_like(array) for array in array_file.read(path)])


def _plant_bytecode(source: Path, text: str) -> None:
    """Bytecode that Python takes for that of the unchanged source: of a file of the same size and time."""
    honest, state = source.read_bytes(), source.stat()
    source.write_text(text.ljust(len(honest) - 1, "#") + "\n")
    os.utime(source, ns=(state.st_atime_ns, state.st_mtime_ns))
    py_compile.compile(str(source), doraise=True)
    py_compile.compile(str(source), cfile=str(source.with_suffix(".pyc")), doraise=True)
    source.write_bytes(honest)
    os.utime(source, ns=(state.st_atime_ns, state.st_mtime_ns))


def _run(
    tree: Path, command: tuple[str, ...], environment: Mapping[str, str], *, inside: bool = False
) -> tuple[str, str]:
    """How ``./ratchet.sh`` ends, as the name of a status, and all that it printed."""
    process = subprocess.Popen(
        [str(tree / "ratchet.sh"), *command],
        cwd=tree if inside else tree.parent,
        env={**os.environ, standby.MINUTES: "0", **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        said, _ = process.communicate()
        return HANGS, said
    code = process.returncode
    return next((status.name for status in Status if status.exit_code == code), f"exit code {code}"), said
