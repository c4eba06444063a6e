"""Another Python, which runs behind the walls of this one: what it is started with, and where its packages are.

Whoever names it may have named any program. So it is asked and run as code of an author's is: this Python builds the
walls and becomes it, and there is nothing else that it may execute.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import struct
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ratchet.process import key
from ratchet.process.boot.children import Interpreter
from ratchet.process.sandbox.child import Child, Limits
from ratchet.values.status import Refusal, Status

_OLDEST = (3, 11)
"""What runs the jail's own modules."""
_WANTED = ".".join(map(str, _OLDEST))
_LIMITS = Limits(seconds=60, memory_bytes=2 << 30)
_QUESTION = """
import json, sys
print(json.dumps({"version": sys.version_info[:2], "path": [p for p in sys.path if p], "prefix": sys.prefix,
                  "base": sys.base_prefix, "executable": sys.executable}))
"""
_LOADER, _ELF64 = 3, b"\x7fELF\x02"  # include/uapi/linux/elf.h: PT_INTERP
_MOST_HEADERS, _MOST_PATH = 64, 4096


def find(python: str | Path) -> Interpreter:
    """The interpreter at a path or of a name on the PATH. It is asked behind all walls.

    Raises:
      Refusal: ``NOT_FOUND`` where it cannot be run, ``USAGE`` where it is older than Python 3.11.
    """
    found = shutil.which(python)
    if found is None:
        raise Refusal(Status.NOT_FOUND, f"there is no {python} that can be run as a Python")
    place = os.path.abspath(found)
    bins = (os.path.realpath(os.path.dirname(one)) for one in (place, os.path.realpath(place)))
    folders = _readable(place, [*map(os.path.dirname, bins)])
    asked = Interpreter(executable=place, path=(), readable=folders, programs=_programs(place), asks=_QUESTION)
    with tempfile.TemporaryDirectory(prefix="ratchet-") as folder:
        with Child("", directory=Path(folder, "asked"), interpreter=asked) as child:
            ending = child.ask(child.directory, _LIMITS)
        try:
            answer = json.loads(ending.answer)
            version, path = tuple(map(int, answer["version"])), tuple(map(str, answer["path"]))
            prefixes = (str(answer["prefix"]), str(answer["base"]))
        except (ValueError, KeyError, TypeError):
            message = f"{python} cannot be run as a Python {_WANTED} or newer: {ending.last:.200}"
            raise Refusal(Status.NOT_FOUND, message) from None
    if version < _OLDEST:
        raise Refusal(Status.USAGE, f"{python} is Python {'.'.join(map(str, version))}, wanted {_WANTED} or newer")
    readable = _readable(place, (*folders, *prefixes, *path))
    return Interpreter(executable=place, path=path, readable=readable, programs=asked.programs)


def _readable(python: str, folders: Sequence[str]) -> tuple[str, ...]:
    """The folders, and what they lead to.

    Raises:
      Refusal: ``USAGE`` where the user's key is below one: a Python in a home folder of the user's, say.
    """
    readable = tuple(dict.fromkeys((*map(os.path.abspath, folders), *map(os.path.realpath, folders))))
    with contextlib.suppress(key.NoKey):
        own = os.path.realpath(key.path())
        if above := [one for one in readable if os.path.commonpath((one, own)) == one]:
            todo = "name one of an environment of its own"
            raise Refusal(Status.USAGE, f"{python} has to read {above[0]}, where this tool's key is: {todo}")
    return readable


def _programs(path: str) -> tuple[str, ...]:
    """What may be executed to run a program: itself, and the loader that it names.

    Raises:
      Refusal: ``NOT_FOUND`` where it is a script, whose own interpreter would have to be run.
    """
    try:
        with open(path, "rb") as file:
            head = file.read(64)
            if not head.startswith(_ELF64):
                message = f"{path} is a script, which starts what it likes: name the program, its `sys.executable`"
                raise Refusal(Status.NOT_FOUND, message)
            (first,), (size, count) = struct.unpack_from("Q", head, 32), struct.unpack_from("HH", head, 54)
            for number in range(min(count, _MOST_HEADERS)):
                file.seek(first + number * size)
                kind, offset, length = struct.unpack("I4xQ16xQ16x", file.read(56))
                if kind == _LOADER:
                    file.seek(offset)
                    return path, os.fsdecode(file.read(min(length, _MOST_PATH)).rstrip(b"\0"))
    except (OSError, struct.error) as error:
        raise Refusal(Status.NOT_FOUND, f"{path} cannot be run as a Python: {error}") from None
    return (path,)
