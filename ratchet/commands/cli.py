"""The command line: dispatch, failures, exit codes."""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Callable, Sequence
from inspect import signature
from pathlib import Path
from typing import Any

from ratchet.commands import environments
from ratchet.commands import options as options_of
from ratchet.exam.judge.steps import machine_trouble
from ratchet.loop import log
from ratchet.process import paths
from ratchet.process.boot import home
from ratchet.values.status import Refusal, Status
from ratchet.view.document import dumps
from ratchet.view.streams import Lasting, lasting
from ratchet.view.terminal import result_line
from ratchet.view.text import clean, clean_lines, first_line
from ratchet.view.verdict_json import verdict_document
from ratchet.wiring import JudgeFunction

Parse = Callable[[Sequence[str]], argparse.Namespace]


def main(arguments: Sequence[str], judge: JudgeFunction) -> int:
    """``./ratchet.sh``: returns the process's exit code."""
    return _guarded(options_of.ratchet, arguments, judge)


def prepare_main(arguments: Sequence[str], judge: JudgeFunction) -> int:
    """``python prepare.py``: judge the working tree, leave the branch alone."""
    return _guarded(options_of.prepare, arguments, judge)


def _guarded(parse: Parse, given: Sequence[str], judge: JudgeFunction) -> int:
    """Parse and run; every failure ends in one or two lines and its own exit code."""
    with lasting() as output:
        code = _exit_code(parse, given, judge, output)
        try:
            output.check()
        except OSError as error:  # an experiment's outcome counts, whether or not it could be printed
            said = f"standard output cannot be written ({error.strerror}): the exit code is {code}"
            print(f"{said}, and `{options_of.PROGRAM} log` has what was recorded", file=sys.stderr)
        return code


def _exit_code(parse: Parse, given: Sequence[str], judge: JudgeFunction, output: Lasting) -> int:
    as_json = options_of.asks_for_json(given)
    try:
        if said := home.trouble_here():
            raise Refusal(Status.NOT_FOUND, said)
        options = parse(given)
        if under := getattr(options, "under", "") or environments.of_repository(options):
            environments.go_on_under(under, given)
        command = options_of.function(options.name, "command")
        assert command is not None
        code = call(command, options, judge)
        if "function" not in signature(command).parameters:
            output.check()  # nothing is judged: the exit code says whether the answer could be printed
        return code
    except Refusal as refusal:
        return _refused(refusal.status, refusal.message, as_json)
    except KeyboardInterrupt:
        return _refused(Status.INTERRUPTED, Status.INTERRUPTED.meaning, as_json)
    except OSError as error:
        trouble = machine_trouble(error)
        return _refused(trouble.status, trouble.message, as_json)
    except Exception:
        traceback.print_exc()
        return _refused(Status.INTERNAL, Status.INTERNAL.meaning, as_json)


_AS_IT_IS = ("rebuild", "mcp", "worker", "node")
"""Commands that write the ledger anew themselves, or where standard error is another program's."""


def call(command: Callable[..., int], options: argparse.Namespace, judge: JudgeFunction) -> int:
    """A command's exit code: its function gets what its keywords name."""
    known: dict[str, Callable[[], Any]] = {
        "root": _root,
        "kernel": lambda: home.kernel(_root(), options.kernel),
        "only": lambda: home.kernel(_root(), options.kernel) if options.kernel else None,
        "function": lambda: judge,
        "say": lambda: _say,
    }
    names = signature(command).parameters
    if (
        {"root", "kernel", "only"} & set(names)
        and getattr(options, "name", "") not in _AS_IT_IS
        and (said := log.put_back_alone(_root()))
    ):
        _say(said)
    keywords = {name: known[name]() for name in names if name in known}
    return command(options, **keywords) if "options" in names else command(**keywords)


def _refused(status: Status, message: str, as_json: bool) -> int:
    print("\n  ".join([f"{status.name}: {first_line(message)}", *clean_lines(message)[1:]]), file=sys.stderr)
    if as_json:
        print(dumps(verdict_document(None, outcome=status, decision=None, reason=message)))
    else:
        print(result_line(None, decision="none", status=status, why=message))
    return status.exit_code


def _root() -> Path:
    here = Path.cwd()
    top = home.repository(here)
    if top is not None:
        return top
    if bare := next((one for one in (here, *here.parents) if _is_bare(one)), None):
        raise Refusal(Status.NOT_A_REPOSITORY, f"{bare} is a bare repository, without files: work in a clone of it")
    raise Refusal(Status.NOT_A_REPOSITORY, f"{here} is in no git repository: `{options_of.PROGRAM} init` makes one")


def _is_bare(folder: Path) -> bool:
    """Whether a folder is what git keeps of a repository, without a work tree."""
    return paths.is_file(folder / "HEAD") and all(paths.is_folder(folder / name) for name in ("objects", "refs"))


def _say(line: str) -> None:
    print(clean(line), file=sys.stderr)
