"""The console script ``ratchet`` of an installed wheel: hands over to the judge's own environment.

The judge runs in a Python of its own, started as ``ratchet.sh`` starts it in a clone: isolated, with the few variables
that it may see. What needs no judge runs here. Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

from ratchet.process.boot import home

LIGHT = ("init", "setup", "uninstall")
"""The commands that run in any Python."""
NO_ENVIRONMENT, NOT_FOUND = 69, 63


def main() -> int:
    """Run a light command, or become the judge; returns the exit code."""
    if trouble := home.trouble_here():
        print(f"NOT_FOUND: {trouble}", file=sys.stderr)
        return NOT_FOUND
    if sys.argv[1:2] in ([name] for name in LIGHT):
        return _light()
    folder = home.environment()
    if folder is None or not home.ready(folder):
        what = "there is no private environment for the judge yet"
        print(f"{what}: `{home.PROGRAM} setup` makes it, once for all workspaces", file=sys.stderr)
        return NO_ENVIRONMENT
    python = os.path.realpath(folder / "bin" / "python")
    repository = home.repository(Path.cwd())
    if repository is not None and Path(python).is_relative_to(repository):
        what = f"the judge's interpreter is {python}, inside the repository, where an author of kernels can edit it"
        print(f"{what}: `{home.PROGRAM} setup` with another Python", file=sys.stderr)
        return NO_ENVIRONMENT
    command = [python, "-I", "-S", str(home.START), "ratchet", *sys.argv[1:]]
    with contextlib.suppress(AttributeError):  # closed by the caller
        sys.stdout.flush()
    os.execve(python, command, home.judges_environment(os.environ, folder))


def _light() -> int:
    from ratchet.commands import environments, options, uninstall, workspace
    from ratchet.values.status import Refusal, Status

    try:
        parsed = options.ratchet(sys.argv[1:])
        commands = {
            "init": workspace.init_command,
            "setup": environments.setup_command,
            "uninstall": uninstall.uninstall_command,
        }
        return commands[parsed.name](parsed)
    except Refusal as refusal:
        print(f"{refusal.status.name}: {refusal.message}", file=sys.stderr)
        return refusal.status.exit_code
    except OSError as error:
        print(f"{Status.LEDGER_UNWRITABLE.name}: {error}", file=sys.stderr)
        return Status.LEDGER_UNWRITABLE.exit_code


if __name__ == "__main__":
    sys.exit(main())
