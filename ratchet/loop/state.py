"""What a run leaves to the next one in ``<git dir>/ratchet``: small files, each with a MAC of this machine's key.

A file there makes the next run move branches, write files and append rows. So one that the key did not make for this
name, by hand or elsewhere, is none: it is set aside, said, and nothing of it is done.
"""

from __future__ import annotations

import json
import secrets
from typing import Any

from ratchet.loop.ledger import writing
from ratchet.process import key
from ratchet.process.boot import home
from ratchet.process.root import Root
from ratchet.values.status import Refusal, Status

FOLDER = "ratchet"
"""Ours in a git folder."""
PENDING, JOINED, PLACED = (f"{FOLDER}/{name}.json" for name in ("pending", "joined", "placed"))
"""All there are: a decision, a merge, and a candidate in the kernel file."""
_MOST_BYTES = 64 << 20
_PURPOSE = "state"


class NotOurs(Exception):
    """There is a file that this machine's key did not make; its text says how one can tell."""


def save(git: Root, name: str, record: object) -> None:
    """Replaces the file, on the disk before this returns. Raises as ``writing``."""
    body, own = json.dumps(record).encode(), key.known()
    mac = own.mac(_PURPOSE, name.encode(), body) if own else ""
    with writing(name):
        git.write(name, mac.encode() + b"\n" + body)


def load(git: Root, name: str) -> Any:
    """What was saved, as JSON has it; None where there is no file.

    Raises:
        NotOurs: it was not saved here.
        Refusal: LEDGER_BROKEN, where it was and cannot be read.
    """
    try:
        mac, _, body = git.read(name, _MOST_BYTES).partition(b"\n")
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise NotOurs(str(error)) from None
    except OSError as error:
        raise NotOurs(error.strerror or str(error)) from None
    own = key.known()
    if mac if own is None else not own.made(mac.decode(errors="replace"), _PURPOSE, name.encode(), body):
        raise NotOurs("this machine's key did not make it")
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise unreadable(git, name, error) from None


def known(git: Root, name: str) -> Any:
    """``load``, and None too for a file that was not saved here: for who only asks."""
    try:
        return load(git, name)
    except NotOurs:
        return None


def refused(git: Root, name: str) -> tuple[str, ...]:
    """Sets a file aside that was not saved here; says so. Raises as ``writing``."""
    try:
        load(git, name)
    except NotOurs as why:
        return (set_aside(git, name, f"was not written by a run here ({why})"),)
    except Refusal:
        pass  # whoever reads it says so
    return ()


def set_aside(git: Root, name: str, why: str) -> str:
    """Gives a file another name, under which nobody reads it; what to say of it. Raises as ``writing``."""
    aside = f"{FOLDER}/refused-{secrets.token_hex(4)}.json"
    with writing(name):
        if git.is_folder(name):
            git.remove(name)
            aside = "nowhere: it was a folder"
        else:
            git.rename(name, aside)
    todo = f"see `{home.PROGRAM} verify`, then remove it; a run of another key goes on where that key is"
    return f"{git.path.name}/{name} {why}: nothing of it was done, and it is now {git.path.name}/{aside}; {todo}"


def strangers(git: Root) -> tuple[str, ...]:
    """The files there that were not saved here, those that were set aside among them."""
    aside = [f"{FOLDER}/{name}" for name in git.names(FOLDER) if name.startswith("refused-")]
    for name in (PENDING, JOINED, PLACED):
        try:
            load(git, name)
        except NotOurs:
            aside.append(name)
        except Refusal:
            pass  # whoever reads it says so
    return tuple(aside)


def clear(git: Root, name: str) -> None:
    """Removes it: all is done. Raises as ``writing``."""
    with writing(name):
        git.unlink(name)
        git.flush(FOLDER)


def unreadable(git: Root, name: str, error: Exception) -> Refusal:
    """Of a file that was saved here by another version of this tool."""
    what = f"the journal {git.path / name} is unreadable ({error})"
    return Refusal(Status.LEDGER_BROKEN, f"{what}: keep a copy, remove it, and run `{home.PROGRAM} verify`")
