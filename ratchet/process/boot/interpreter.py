"""Another Python than the judge's, asked where its packages are. Standard library only."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from ratchet.values.status import Refusal, Status

OLDEST = (3, 11)
"""What runs the jail's own modules."""
SECONDS = 60
_QUESTION = """
import json, sys
print(json.dumps({"version": sys.version_info[:2], "path": [p for p in sys.path if p], "prefix": sys.prefix,
                  "base": sys.base_prefix, "executable": sys.executable}))
"""


@dataclass(frozen=True, kw_only=True)
class Interpreter:
    """A Python with packages of its own."""

    executable: str
    path: tuple[str, ...]
    """Its ``sys.path``, the folder of the caller left out."""
    readable: tuple[str, ...]
    """Folders that it needs besides: where it is installed."""


def asked(python: str | Path) -> Interpreter:
    """The interpreter at a path or of a name on the PATH. Runs it, outside of every jail.

    Raises:
      Refusal: ``NOT_FOUND`` where it cannot be run, ``USAGE`` where it is older than Python 3.11.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "LD_"))}
    try:
        done = subprocess.run(
            [str(python), "-P", "-s", "-c", _QUESTION],
            capture_output=True,
            check=True,
            cwd="/",
            env=environment,
            timeout=SECONDS,
        )
        answer = json.loads(done.stdout)
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace").strip().splitlines()[-1:]
        message = f"{python} is no Python {'.'.join(map(str, OLDEST))} or newer: {''.join(said):.200}"
        raise Refusal(Status.USAGE, message) from None
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise Refusal(Status.NOT_FOUND, f"{python} cannot be run as a Python: {error}") from None
    if tuple(answer["version"]) < OLDEST:
        got, wanted = ".".join(map(str, answer["version"])), ".".join(map(str, OLDEST))
        raise Refusal(Status.USAGE, f"{python} is Python {got}, wanted {wanted} or newer")
    real = os.path.realpath(answer["executable"])
    folders = (answer["prefix"], answer["base"], str(Path(real).parent.parent), *answer["path"])
    return Interpreter(
        executable=answer["executable"],
        path=tuple(answer["path"]),
        readable=tuple(dict.fromkeys((*folders, *map(os.path.realpath, folders)))),
    )
