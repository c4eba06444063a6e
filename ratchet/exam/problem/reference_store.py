"""References on their way between the judge's cache and the values child, which can reach only its own folder.

Beside each file of the cache is its MAC, made with the key of this machine (``ratchet/process/key.py``): what was
edited, or comes from elsewhere, is removed and computed again. Without a key nothing is cached. The problems whose
references were not used for longest go when all of them take more than ``RATCHET_REFERENCES_GIB``, 2 unless it is set.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import time
from pathlib import Path

from ratchet.exam.problem.array_file import SUFFIX
from ratchet.exam.problem.problem import Problem
from ratchet.process import key
from ratchet.process.key import Key
from ratchet.process.sandbox.folder import copy_file, read_file, remove
from ratchet.values.status import Refusal, Status

MAC = ".mac"
BUDGET, DEFAULT_GIB = "RATCHET_REFERENCES_GIB", 2.0
_MAC_BYTES = 256
_LEFT_OVER_S = 86400.0
"""Age from which a half-written file is that of a process that was killed."""


def folder_of(problem: Problem, clone: Path, secret: bytes) -> Path:
    """Where a problem's references are cached below ``clone``, the judge's folder in a clone.

    They belong to the problem, to the code that made them, and to the secret that their inputs came from.
    """
    owner = hashlib.sha256(b"references" + secret).hexdigest()[:8]
    return clone / "references" / f"{problem.short}-{_method()}-{owner}"


def _method() -> str:
    """Digest of this folder's code, which makes references: what it made before it changed is not used again."""
    sources = (path.read_bytes() for path in sorted(Path(__file__).parent.rglob("*.py")))
    return hashlib.sha256(b"".join(sources)).hexdigest()[:8]


def lend(cached: Path, folder: Path) -> Path:
    """Copy what is in the cache ``cached`` and not there yet to a folder of that name in ``folder``, which is returned.

    The copy is checked, and removed with its original where this machine's key did not make its MAC.
    """
    lent = folder / cached.name
    lent.mkdir(parents=True, exist_ok=True)
    own = key.known()
    wanted = [file for file in cached.glob(f"[!.]*{SUFFIX}") if not (lent / file.name).exists()]
    for file in wanted if own else ():
        with contextlib.suppress(OSError):
            copy_file(file, lent / file.name)
        if own and not _is_made_here(own, lent / file.name, file):
            for one in (lent / file.name, file, file.with_suffix(MAC)):
                with contextlib.suppress(OSError):
                    one.unlink()
    if wanted:
        with contextlib.suppress(OSError):
            os.utime(cached)  # used now
    return lent


def collect(lent: Path, cached: Path) -> None:
    """Copy what the child made to the cache, each file whole or not at all, with its MAC; what is cached stays.

    Raises:
      Refusal: ``NO_SPACE``, or ``INFRASTRUCTURE`` where the cache cannot be written.
    """
    own = key.known()
    made = [file for file in lent.glob(f"[!.]*{SUFFIX}") if not (cached / file.name).exists()]
    if own is None or not made:
        return
    try:
        cached.mkdir(parents=True, exist_ok=True)
        for file in made:
            _keep(own, file, cached / file.name)
    except OSError as error:
        status = Status.NO_SPACE if error.errno in (errno.ENOSPC, errno.EDQUOT) else Status.INFRASTRUCTURE
        what = f"the judge cannot keep what it computed in {cached}: {error.strerror or error}: free or repair that"
        raise Refusal(status, what) from None
    prune(cached.parent, keep=cached.name, max_bytes=budget_bytes())


def budget_bytes() -> int:
    """What references may take on disk, in bytes.

    Raises:
      Refusal: ``USAGE`` if the environment variable is no number.
    """
    given = os.environ.get(BUDGET, "")
    try:
        return int(float(given or DEFAULT_GIB) * (1 << 30))
    except (ValueError, OverflowError):
        raise Refusal(Status.USAGE, f"{BUDGET} is {given!r}, wanted a number of GiB such as 2") from None


def prune(folder: Path, *, keep: str, max_bytes: int) -> tuple[str, ...]:
    """Remove the problems in ``folder`` that were not used for longest, until ``max_bytes`` are enough for all.

    ``keep`` stays. Returns the names of those that went. What cannot be removed is left.
    """
    problems = [(one.stat().st_mtime, one) for one in folder.iterdir() if one.is_dir() and not one.is_symlink()]
    sizes = {one: sum(file.lstat().st_size for file in one.iterdir()) for _, one in problems}
    total, gone = sum(sizes.values()), []
    for _, one in sorted(problems):
        if total > max_bytes and one.name != keep and remove(one):
            total -= sizes[one]
            gone.append(one.name)
    for left_over in (folder / keep).glob(".*"):
        with contextlib.suppress(OSError):
            if time.time() - left_over.lstat().st_mtime > _LEFT_OVER_S:
                left_over.unlink()
    return tuple(gone)


def _keep(own: Key, file: Path, target: Path) -> None:
    """Written to a temporary file and renamed, the MAC last. Signed is the copy, which the child cannot reach."""
    temporary = target.with_name(f".{os.getpid()}.{target.name}")
    try:
        copy_file(file, temporary)
        mac = _mac(own, temporary, target)
        temporary.replace(target)
        temporary.write_text(mac)
        temporary.replace(target.with_suffix(MAC))
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def _mac(own: Key, file: Path, cached: Path) -> str:
    """The MAC of the contents of ``file`` as those of ``cached``."""
    with file.open("rb") as opened:
        content = hashlib.file_digest(opened, "sha256").digest()
    return own.mac("reference", cached.parent.name.encode(), cached.name.encode(), content)


def _is_made_here(own: Key, copy: Path, cached: Path) -> bool:
    """Whether the MAC beside ``cached`` is that of what was copied from there."""
    try:
        return read_file(cached.with_suffix(MAC), _MAC_BYTES).decode() == _mac(own, copy, cached)
    except (OSError, ValueError):
        return False
