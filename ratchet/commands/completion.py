"""``ratchet completion bash|zsh``"""

from __future__ import annotations

import argparse
from pathlib import Path

from ratchet.commands import options
from ratchet.values.status import Status

_NAMES = ("ratchet", "ratchet.sh")
"""What the command line is called: installed, and in a clone."""


def command(given: argparse.Namespace) -> int:
    """Print a script for the shell; the shell completes ``./ratchet.sh`` by its last part."""
    print(script(given.shell), end="")
    return Status.PASS.exit_code


def script(shell: str) -> str:
    """Completion of commands, options, their choices and files, for ``bash`` or ``zsh``."""
    import shtab

    parser = options.ratchet_parser()
    _describe(parser)
    parser.prog = "ratchet"
    text: str = shtab.complete(parser, shell=shell, root_prefix="ratchet")
    if shell == "bash":
        return (
            text.rstrip("\n")
            + "\n"
            + "\n".join(f"complete -o filenames -F _shtab_ratchet {name}" for name in _NAMES)
            + "\n"
        )
    both = " ".join(_NAMES)
    text = text.replace("#compdef ratchet\n", f"#compdef {both}\n")
    return text.replace("compdef _shtab_ratchet -N ratchet\n", f"compdef _shtab_ratchet {both}\n").rstrip("\n") + "\n"


def _describe(parser: argparse.ArgumentParser) -> None:
    """Tell shtab which values are files or folders."""
    import shtab

    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                _describe(below)
        elif action.type is Path:
            action.complete = shtab.DIRECTORY if action.metavar == "DIR" else shtab.FILE  # type: ignore[attr-defined]
