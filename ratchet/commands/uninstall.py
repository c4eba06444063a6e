"""``uninstall``: what this tool made outside of repositories, listed, and removed on demand. Standard library only."""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from ratchet.process import key
from ratchet.process.boot import home
from ratchet.values.status import Refusal, Status

_STAYS = "results.tsv, hlo_dumps/, profile_data/, .ratchet/ and refs/ratchet/ of your repositories are yours, and stay"


def uninstall_options(parser: argparse.ArgumentParser) -> None:
    """Whether to remove it."""
    parser.add_argument("--yes", action="store_true", help="remove what is listed")


def uninstall_command(options: argparse.Namespace) -> int:
    """List what there is, with sizes; with ``--yes`` remove it. Raises Refusal ``INFRASTRUCTURE`` for what stays."""
    found = [(path, what, _bytes(path)) for path, what in made()]
    for path, what, size in found:
        print(f"{'removing' if options.yes else 'would remove'} {path} ({what}, {size / 1e6:,.1f} MB)")
    left = [path for path, _, _ in found if options.yes and not _remove(path)]
    if not found:
        print("nothing of this tool's is outside of your repositories")
    with contextlib.suppress(key.NoKey):
        if key.path().exists():
            print(f"left: {key.path()}, the key that says which rows are yours; remove it last, by hand")
    print(f"left: {_STAYS}")
    if found and not options.yes:
        print(f"`{home.PROGRAM} uninstall --yes` removes it, {sum(size for *_, size in found) / 1e9:.1f} GB")
    if home.INSTALLED:
        print("the package itself: `pip uninstall pallas-ratchet`")
    if left:
        raise Refusal(Status.INFRASTRUCTURE, f"not removed: {', '.join(map(str, left))}; make it writable")
    return Status.PASS.exit_code


def made() -> Iterator[tuple[Path, str]]:
    """Paths of this user's that hold nothing but what this tool wrote, and what that is."""
    private = home.private_folder()
    entries = sorted(private.iterdir()) if private else []
    environments = [one for one in entries if one.name == "environments"]
    for one in (path for folder in environments for path in sorted(folder.iterdir())):
        yield one, "an environment" if one.is_dir() else "of an environment"
    if private is not None and len(entries) > len(environments):
        yield private, "compiled code and what is remembered of installed packages"
    elif private is not None and environments:
        yield private, "the folder of environments"
    named = home.environment() if home.INSTALLED else None  # a clone's is inside of it
    outside = named is not None and (private is None or not named.is_relative_to(private))
    if named is not None and outside and all((named / name).is_file() for name in (home.LOCK.name, "pyvenv.cfg")):
        yield named, "the judge's environment"
        guard = named.with_name(f"{named.name}.lock")
        if guard.is_file():
            yield guard, "its lock"


def _bytes(path: Path) -> int:
    """Of all files below a path; those of environments are not counted with the folder above them."""
    total, own = 0, path.name == "pallas-ratchet"
    for folder, folders, files in os.walk(path):
        if own and folder == str(path):
            folders[:] = [one for one in folders if one != "environments"]
        for name in files:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(folder, name)).st_size
    return total if path.is_dir() else path.lstat().st_size


def _remove(path: Path) -> bool:
    """Take a file or a folder away, no link followed; whether it is gone."""
    with contextlib.suppress(OSError):
        if path.is_symlink() or path.is_file():
            path.unlink()
        else:
            shutil.rmtree(path, ignore_errors=True)
    return not os.path.lexists(path)
