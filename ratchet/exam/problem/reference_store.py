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
from pathlib import Path, PurePath

from ratchet.exam.problem.array_file import SUFFIX
from ratchet.exam.problem.problem import Problem
from ratchet.process import key, made, paths
from ratchet.process.key import Key
from ratchet.process.root import Root
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
    own = Root(Path(__file__).parent)
    sources = (own.read(name) for name in own.files() if name.endswith(".py"))
    return hashlib.sha256(b"".join(sources)).hexdigest()[:8]


def lend(cached: Path, folder: Path) -> Path:
    """Copy what is in the cache ``cached`` and not there yet to a folder of that name in ``folder``, which is returned.

    The copy is checked, and removed with its original where this machine's key did not make its MAC.
    """
    (cache, name), lent = paths.of(cached), Root(folder / cached.name)
    paths.make_folder(lent.path)
    own = key.known()
    wanted = [file for file in _arrays(cache, name) if not lent.exists(file)]
    for file in wanted if own else ():
        content = b""
        with contextlib.suppress(OSError), cache.open(f"{name}/{file}") as given:
            content = lent.take(given, file)
        if own and not _is_made_here(own, content, cache, f"{name}/{file}"):
            for root, one in ((lent, file), (cache, f"{name}/{file}"), (cache, _mac_of(f"{name}/{file}"))):
                with contextlib.suppress(OSError):
                    root.unlink(one)
    if wanted:
        with contextlib.suppress(OSError):
            cache.used(name)
    return lent.path


def collect(lent: Path, cached: Path) -> None:
    """Copy what the child made to the cache, each file whole or not at all, with its MAC; what is cached stays.

    Raises:
      Refusal: ``NO_SPACE``, or ``INFRASTRUCTURE`` where the cache cannot be written.
    """
    own, child = key.known(), Root(lent)
    cache, name = paths.of(cached)
    new = [file for file in _arrays(child, ".") if not cache.exists(f"{name}/{file}")]
    if own is None or not new:
        return
    try:
        paths.make_folder(cached)
        made.mark(cache, name)
        for file in new:
            with child.open(file) as given:
                content = cache.take(given, f"{name}/{file}")
            mac = _mac(own, content, f"{name}/{file}")  # of the bytes that were written: whoever edits them is found
            cache.write(_mac_of(f"{name}/{file}"), mac.encode(), flush=False)
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
    root, below = paths.of(folder)
    folders = [one for name in root.names(below) if root.is_folder(one := f"{below}/{name}")]
    problems = sorted((state.st_mtime, one) for one in folders if (state := root.state(one)))
    sizes = {one: sum(_size(root, file) for file in root.files(one)) for _, one in problems}
    total, gone = sum(sizes.values()), []
    for _, one in problems:
        name = PurePath(one).name
        if total > max_bytes and name != keep and made.remove(root, one):
            total -= sizes[one]
            gone.append(name)
    root.sweep(f"{below}/{keep}", older_s=_LEFT_OVER_S)
    return tuple(gone)


def _size(root: Root, file: str) -> int:
    state = root.state(file)
    return state.st_size if state else 0


def _arrays(root: Root, folder: str) -> list[str]:
    return [name for name in root.names(folder) if name.endswith(SUFFIX) and not name.startswith(".")]


def _mac_of(file: str) -> str:
    """The file of a file's MAC."""
    return file.removesuffix(SUFFIX) + MAC


def _mac(own: Key, content: bytes, cached: str) -> str:
    """The MAC of a file with these contents, by their SHA-256, as that of ``cached``."""
    *_, folder, name = cached.split("/")
    return own.mac("reference", folder.encode(), name.encode(), content)


def _is_made_here(own: Key, content: bytes, cache: Root, file: str) -> bool:
    """Whether the MAC beside a file of the cache is that of what was copied from there."""
    try:
        return cache.read(_mac_of(file), _MAC_BYTES).decode() == _mac(own, content, file)
    except (OSError, ValueError):
        return False
