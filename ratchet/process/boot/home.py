"""Where the judge is, where it keeps what is its own, and where the repository is that it judges in.

In a clone the judge's files are those of the repository, and so is its environment, ``.venv``. Installed from a wheel,
its modules are among other packages, its other files beside them in ``pallas_ratchet/``, its environment is one for
all workspaces, and the repository is that of the working directory. Standard library only: it is read at the start.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pwd
from pathlib import Path

PACKAGE_ROOT = Path(__file__).resolve().parents[3]
"""The folder that holds the package ``ratchet``: the top of a clone, or a folder of installed packages."""
_SHIPPED = PACKAGE_ROOT / "pallas_ratchet"
START = Path(__file__).with_name("start.py")
"""The first file of the judge's that runs."""
INSTALLED = _SHIPPED.is_dir()
"""Whether this is a wheel's copy."""
FILES = _SHIPPED if INSTALLED else PACKAGE_ROOT
"""Where ``prepare.py``, ``requirements.lock``, ``program.md`` and the examples are."""
LOCK = FILES / "requirements.lock"
PROGRAM = "ratchet" if INSTALLED else "./ratchet.sh"
"""What a user types."""
KERNEL = "kernel.py"
"""The kernel file that is judged where none is named."""
ENVIRONMENT = "RATCHET_ENVIRONMENT"
"""The variable that names another environment than the shared one. A clone does not look at it."""

VARIABLES = (
    "HOME USER LOGNAME PATH LANG LC_ALL LC_CTYPE TZ TERM COLUMNS LINES NO_COLOR FORCE_COLOR TMPDIR EMAIL "
    "XDG_CACHE_HOME XDG_CONFIG_HOME GIT_CONFIG_GLOBAL GIT_CONFIG_NOSYSTEM GIT_AUTHOR_NAME GIT_AUTHOR_EMAIL "
    "GIT_AUTHOR_DATE GIT_COMMITTER_NAME GIT_COMMITTER_EMAIL GIT_COMMITTER_DATE CUDA_VISIBLE_DEVICES "
    "RATCHET_LIBRARY_PATH PYTHONIOENCODING RATCHET_REFERENCES_GIB RATCHET_STANDBY_MINUTES"
).split()
"""The variables that the judge may see: those of ``environment.sh``."""


def private_folder() -> Path | None:
    """``pallas-ratchet`` in the user's cache folder, readable by nobody else; None where it cannot be."""
    try:
        folder = _caches() / "pallas-ratchet"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        state = folder.lstat()
    except (KeyError, OSError):
        return None
    ours = state.st_uid == os.getuid() and not state.st_mode & 0o077 and folder.is_dir() and not folder.is_symlink()
    return folder if ours and os.access(folder, os.W_OK) else None


def _caches() -> Path:
    """``XDG_CACHE_HOME`` where that is outside of every repository, so that no author of kernels reaches it; else
    ``~/.cache`` by the password file. Raises KeyError for a user who is not in it."""
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if named.is_absolute():
        real = Path(os.path.realpath(named))
        if not any(os.path.lexists(one / ".git") for one in (real, *real.parents)):
            return named
    return Path(pwd.getpwuid(os.getuid()).pw_dir, ".cache")


def keep(path: Path, data: bytes) -> None:
    """Write a file of the private folder whole or not at all. Nothing depends on its success."""
    temporary = path.with_name(f"new-{os.getpid()}")
    with contextlib.suppress(OSError):
        temporary.write_bytes(data)
        temporary.replace(path)


def least_used(pattern: str, folder: Path, kept: int) -> list[Path]:
    """Of what matches ``pattern`` in a folder all but the few that were used last."""
    return sorted(folder.glob(pattern), key=lambda path: path.stat().st_mtime)[:-kept]


def environment() -> Path | None:
    """The folder of the judge's own packages, made or not; None where there is no private folder for it.

    An environment is named by its lock file, so that two versions of the tool with the same packages share one.
    """
    if not INSTALLED:
        return PACKAGE_ROOT / ".venv"
    if os.environ.get(ENVIRONMENT):
        return Path(os.environ[ENVIRONMENT]).absolute()
    private = private_folder()
    name = hashlib.sha256(LOCK.read_bytes()).hexdigest()[:16]
    return private / "environments" / name if private else None


def environment_of_jax(version: str) -> Path | None:
    """The folder of the packages of another JAX, made or not; None where there is no private folder for it."""
    private = private_folder()
    return private / "environments" / f"jax-{version}" if private else None


def ready(folder: Path) -> bool:
    """Whether an environment is complete: its copy of the lock file is written last."""
    mark = folder / LOCK.name
    return mark.is_file() and mark.read_bytes() == LOCK.read_bytes()


def trouble_here() -> str:
    """What is wrong with the working directory, in one line; ``""`` where nothing is."""
    try:
        os.getcwd()
    except OSError as error:
        return f"the working directory cannot be used ({error.strerror}): `cd` into one that is there, and run again"
    return ""


def repository(start: Path) -> Path | None:
    """The top of the repository: the clone's, or, installed, the nearest above ``start``; None where there is none."""
    if not INSTALLED:
        return PACKAGE_ROOT
    here = start.resolve()
    return next((folder for folder in (here, *here.parents) if os.path.lexists(folder / ".git")), None)


def kernel(root: Path, given: Path | None) -> Path:
    """The kernel file: relative to the caller's folder if it is there, else to the repository ``root``.

    Where none is named, the repository's own ``kernel.py``: the caller's folder may have another one.
    """
    if given is None:
        here = Path.cwd() / KERNEL
        return here if INSTALLED and here.is_file() else root / KERNEL
    return given.resolve() if given.exists() else root / given


def judge_root(repository: Path) -> Path:
    """The folder whose judge judges in ``repository``: its own in a clone, the installed one elsewhere."""
    return PACKAGE_ROOT if INSTALLED else repository


def judges_environment(given: os._Environ[str] | dict[str, str], folder: Path) -> dict[str, str]:
    """The variables of the judge's process."""
    kept = {name: given[name] for name in VARIABLES if name in given}
    if given.get("LD_LIBRARY_PATH"):
        kept["RATCHET_LIBRARY_PATH"] = given["LD_LIBRARY_PATH"]
    return {**kept, ENVIRONMENT: str(folder)}
