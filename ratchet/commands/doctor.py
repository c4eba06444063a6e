"""``doctor``: what this machine can and cannot do here. Looks only; changes nothing."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from ratchet.commands.options import json_option
from ratchet.exam.judge import evidence
from ratchet.exam.measure import devices
from ratchet.loop import log
from ratchet.loop.history import History
from ratchet.process import key, paths
from ratchet.process.boot import home
from ratchet.process.root import Root
from ratchet.process.sandbox.child import NAMES, Child
from ratchet.values.status import Refusal, Status
from ratchet.view.console import coloured, terminal_width
from ratchet.view.document import dumps, or_null, plain
from ratchet.view.text import clean, wrapped

LEAST_MEMORY = 4 << 30
"""Bytes that the compiler and the values of a kernel of ordinary size take together."""
LEAST_DISK = 1 << 30
"""Bytes for one experiment's evidence beside what is kept, and for the children's folders."""
_GIB = 1 << 30
_PACKAGES = ("jax", "jaxlib", "libtpu")
_EXTRAS = {
    "optuna": "`search --how tpe`",
    "mcp": "`mcp`, tools for agents",
    "xprof": "opening traces",
    "shtab": "`completion`",
    "ray": "many machines",
}
_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome", "firefox")
_NARROW = 60


class Health(Enum):
    """How much is lost."""

    OK = "ok"
    LESS = "less"
    """Something is weaker or left out; kernels are judged all the same."""
    MISSING = "missing"
    """No kernel can be judged."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that was looked at."""

    name: str
    health: Health
    what: str
    todo: str = ""
    """What to do about it; ``""`` where there is nothing to do."""


def doctor_options(parser: argparse.ArgumentParser) -> None:
    """No more than ``--json``."""
    json_option(parser)


def doctor_command(options: argparse.Namespace) -> int:
    """Print what was found; the exit code says whether a kernel can be judged."""
    findings = tuple(finding for check in CHECKS for finding in check())
    text = doctor_text(findings, width=terminal_width(), colour=coloured())
    print(dumps(doctor_document(findings)) if options.json else text)
    if any(one.health is Health.MISSING for one in findings):
        print(f"{Status.INFRASTRUCTURE.name}: {verdict_of(findings)}", file=sys.stderr)
        return Status.INFRASTRUCTURE.exit_code
    return Status.PASS.exit_code


def _found(name: str, fine: bool, what: str, todo: str = "", *, otherwise: Health = Health.LESS) -> Finding:
    """One that is fine, or else how much is lost and what to do."""
    return Finding(name=name, health=Health.OK if fine else otherwise, what=what, todo="" if fine else todo)


def python() -> Iterator[Finding]:
    """The interpreter, and the machine that it runs on."""
    yield _found(
        "python",
        sys.version_info >= (3, 11),
        f"{platform.python_version()}, {sys.executable}",
        "install Python 3.11 or newer and set RATCHET_PYTHON to it",
        otherwise=Health.MISSING,
    )
    yield _found(
        "machine",
        platform.system() == "Linux" and platform.machine() == "x86_64",
        f"{platform.system()} {platform.release()}, {platform.machine()}",
        "the TPU compiler runs on Linux on x86-64 alone: use such a machine",
        otherwise=Health.MISSING,
    )


def size() -> Iterator[Finding]:
    """Cores, memory and disk."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    todo = "two cores halve the time of a verdict: compiler and values run side by side"
    yield _found("cores", cores > 1, devices.cpu(), todo)
    total, free = memory()
    todo = f"end what needs memory: {LEAST_MEMORY / _GIB:.0f} GiB free are enough"
    what = f"{free / _GIB:.1f} GiB free of {total / _GIB:.1f} GiB"
    yield _found("memory", free >= LEAST_MEMORY, what, todo)
    root = home.repository(Path.cwd()) or Path.cwd()
    kept = _evidence_bytes(root)
    holds = f"; evidence takes {kept / _GIB:.2f} of {evidence.MAX_BYTES / _GIB:.0f} GiB"
    yield _disk("disk", root, LEAST_DISK + max(0, evidence.MAX_BYTES - kept), holds)
    yield _disk("temporary", Path(tempfile.gettempdir()), LEAST_DISK)


def _disk(name: str, folder: Path, needed: int, holds: str = "") -> Finding:
    free = shutil.disk_usage(folder).free
    otherwise = Health.LESS if free >= LEAST_DISK else Health.MISSING
    what = f"{free / _GIB:.1f} GiB free in {folder}{holds}"
    return _found(name, free >= needed, what, f"free {(needed - free) / _GIB:.1f} GiB there", otherwise=otherwise)


def packages() -> Iterator[Finding]:
    """The judge's environment and the compiler in it."""
    folder = home.environment()
    current = folder is not None and home.ready(folder)
    todo = f"run `{home.PROGRAM} setup`" if home.INSTALLED else "remove .venv: the next run makes it anew from the lock"
    what = f"{folder}, {'as requirements.lock says' if current else 'not as requirements.lock says'}"
    yield _found("environment", current, what, todo, otherwise=Health.MISSING)
    versions = {name: _version(name) for name in _PACKAGES}
    what = ", ".join(f"{name} {version or 'missing'}" for name, version in versions.items())
    yield _found("compiler", all(versions.values()), what, todo, otherwise=Health.MISSING)
    lost = [f"{name} ({what})" for name, what in _EXTRAS.items() if not _version(name)]
    what = f"missing: {', '.join(lost)}" if lost else ", ".join(_EXTRAS)
    yield _found("extras", not lost, what, "they are in requirements.lock: make the environment anew")


def attached() -> Iterator[Finding]:
    """Devices that can be timed. None is needed."""
    for name, find in (("TPU", devices.tpu), ("GPU", devices.gpu)):
        device = find()
        try:
            said = devices.device(name.lower()) if device else "none, and none is needed: latencies are modelled"
            yield _found(name, True, said)
        except Refusal as refusal:
            yield _found(name, False, device, refusal.message)


def jail() -> Iterator[Finding]:
    """The walls around a kernel file, as a child builds them."""
    with tempfile.TemporaryDirectory(prefix="ratchet-") as folder:
        child = Child(_NOTHING, directory=Path(folder, "child"))
        try:
            missing = child.missing
        finally:
            child.end()
    what = ", ".join(f"{name} {'missing' if name in missing else 'there'}" for name in NAMES)
    yield _found("jail", not missing, what, _WALLS)


def history() -> Iterator[Finding]:
    """Git, the repository, its ledger and the key that rows are signed with."""
    git = shutil.which("git")
    if git is None:
        yield _found("git", False, "no git on the path", "install git", otherwise=Health.MISSING)
        return
    root = home.repository(Path.cwd())
    if root is None:
        yield _found("git", True, git)
        yield _found("repository", False, f"none at {Path.cwd()}", f"`{home.PROGRAM} init` lays one out")
    else:
        yield from _repository(root)
    try:
        yield _found("key", True, f"{key.path()}, {key.load(make=False).name}")
    except key.NoKey as none:
        yield _found("key", False, str(none), "the first experiment makes one, where it can write")


def _repository(root: Path) -> Iterator[Finding]:
    try:
        branch = History(root).checks.ready().branch.removeprefix("refs/heads/")
        yield _found("git", True, f"{root}, branch {branch}, with an identity for commits")
    except Refusal as refusal:
        what, _, todo = refusal.message.rpartition(": ")
        yield _found("git", False, what or refusal.message, todo, otherwise=Health.MISSING)
    try:
        yield _found("ledger", True, f"{len(log.rows(root))} rows, their chain whole")
    except Refusal as refusal:
        what, _, todo = refusal.message.partition("; ")
        yield _found("ledger", False, what, todo, otherwise=Health.MISSING)


def browser() -> Iterator[Finding]:
    """Something to look at traces and reports with."""
    found = next(filter(None, map(shutil.which, _BROWSERS)), None)
    said = "none on the path: copy reports to a machine with one, or forward XProf's port"
    yield _found("browser", True, found or said)


CHECKS: tuple[Callable[[], Iterator[Finding]], ...] = (python, size, packages, attached, jail, history, browser)
_NOTHING = "ratchet.process.sandbox.system"
"""A module that does nothing: what is asked is which walls the launcher could build."""
_WALLS = (
    "namespaces: `sysctl kernel.unprivileged_userns_clone=1`, or a container with them; Landlock: Linux 5.13 or newer, "
    "in `lsm=`; seccomp: x86-64; docs/threat-model.md says what is lost"
)


def memory() -> tuple[int, int]:
    """Bytes of memory: in all, and free for a new process, as this process's control group allows."""
    try:
        lines = dict(line.split(":", 1) for line in paths.read(Path("/proc/meminfo")).decode().splitlines())
        total, free = (int(lines[name].split()[0]) << 10 for name in ("MemTotal", "MemAvailable"))
    except (OSError, ValueError, KeyError, IndexError):
        return 0, 0
    try:
        limit = int(paths.read(Path("/sys/fs/cgroup/memory.max")).decode())
        used = int(paths.read(Path("/sys/fs/cgroup/memory.current")).decode())
        total, free = min(total, limit), max(0, min(free, limit - used))
    except (OSError, ValueError):  # no such file, or "max"
        pass
    return total, free


def _evidence_bytes(root: Path) -> int:
    top = Root(root)
    states = (top.state(file) for name in evidence.FOLDERS for file in top.files(name))
    return sum(state.st_size for state in states if state is not None)


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


# --- what is printed ---


def verdict_of(findings: Sequence[Finding]) -> str:
    """One sentence over all of them."""
    if missing := [one.name for one in findings if one.health is Health.MISSING]:
        return f"no kernel can be judged here: {', '.join(missing)}"
    less = [one.name for one in findings if one.health is Health.LESS]
    return f"kernels can be judged here; less than there could be: {', '.join(less)}" if less else "all is well"


def doctor_text(findings: Sequence[Finding], *, width: int | None = None, colour: bool = False) -> str:
    """A line for each finding, what to do below it, and the sentence over all."""
    wide = max(len(one.name) for one in findings)
    lines = []
    for one in findings:
        mark = _marked(one.health, colour)
        said = _wrapped(f"{one.name:<{wide}}  {clean(one.what)}", width, under=wide + 2, taken=9)
        lines += [f"{mark}  {said[0]}", *(f"         {line}" for line in said[1:])]
        if one.todo:
            under = " " * (wide + 11 if width is None or width >= _NARROW else 9)
            lines += [f"{under}{line}" for line in _wrapped(f"-> {clean(one.todo)}", width, under=3, taken=len(under))]
    return "\n".join([*lines, verdict_of(findings)])


def doctor_document(findings: Sequence[Finding]) -> dict[str, Any]:
    """The same as JSON."""
    found = plain(findings, {Finding: {...: (), **or_null("todo")}})
    return {"can_judge": all(one.health is not Health.MISSING for one in findings), "findings": found}


def _marked(health: Health, colour: bool) -> str:
    word = f"{health.value:<7}"
    code = {Health.OK: "32", Health.LESS: "33", Health.MISSING: "31"}[health]
    return f"\x1b[{code}m{word}\x1b[0m" if colour else word


def _wrapped(text: str, width: int | None, *, under: int, taken: int) -> list[str]:
    if width is None:
        return [text]
    indent = " " * (under if width >= _NARROW else 2)
    return wrapped(text, max(20, width - taken), under=indent) or [text]
