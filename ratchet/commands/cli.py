"""The command line: wiring, printing, exit codes. The only module that knows every room."""

from __future__ import annotations

import argparse
import contextlib
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any

from ratchet.commands import options as options_of
from ratchet.exam.judge import evidence
from ratchet.exam.judge.seal import seal
from ratchet.exam.judge.steps import machine_trouble
from ratchet.loop import log
from ratchet.loop.experiment import Idea, run_experiment
from ratchet.loop.judge import Judge
from ratchet.loop.judge_only import judge_only
from ratchet.loop.ledger import NAME
from ratchet.loop.series import PROOFS
from ratchet.loop.trial import Outcome
from ratchet.process.boot import home
from ratchet.values.status import Refusal, Status
from ratchet.view.document import dumps
from ratchet.view.ledger import fidelity_table, origins_text, series_text
from ratchet.view.streams import Lasting, Progress, lasting
from ratchet.view.terminal import report, result_line
from ratchet.view.text import clean
from ratchet.view.verdict_json import verdict_document
from ratchet.wiring import BLAME, DUMPS, JudgeFunction, RepositoryJudge, evaluator, refuted

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
        options = parse(given)
        name = getattr(options, "name", "prepare")
        if name in EXPERIMENTS:
            return EXPERIMENTS[name](options, judge)
        code = COMMANDS[name](options)
        output.check()
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


def _refused(status: Status, message: str, as_json: bool) -> int:
    print(f"{status.name}: {clean(message)}", file=sys.stderr)
    if as_json:
        document = verdict_document(None, outcome=status, decision=None, reason=message)
        print(dumps(document))
    else:
        print(result_line(None, decision="none", status=status))
    return status.exit_code


def _root() -> Path:
    top = home.repository(Path.cwd())
    if top is None:
        raise Refusal(
            Status.NOT_A_REPOSITORY, f"{Path.cwd()} is in no git repository: `{options_of.PROGRAM} init` makes one"
        )
    return top


def _kernel(given: Path | None) -> Path:
    return home.kernel(_root(), given)


def _judge(root: Path, options: argparse.Namespace, function: JudgeFunction, progress: Progress) -> RepositoryJudge:
    return RepositoryJudge(
        root=root,
        function=function,
        evaluator=evaluator(options_of.evaluator(options)),
        budget_s=options.budget,
        deep=options.deep,
        new_problem=getattr(options, "new_problem", False),
        progress=progress,
        remember=not options.fresh,
    )


def _subject(
    root: Path, options: argparse.Namespace, function: JudgeFunction, progress: Progress, *, committed: bool
) -> tuple[Path, Judge]:
    """What is judged and by which judge: the kernel file that is named, else the project, else ``kernel.py``."""
    from ratchet.commands import judge

    project = None if options.kernel else judge.of_repository(root, options, function, progress, committed=committed)
    return project or (_kernel(options.kernel), _judge(root, options, function, progress))


def _run(options: argparse.Namespace, function: JudgeFunction) -> int:
    root = _root()
    idea = Idea(
        message=options.message,
        new_problem=options.new_problem,
        accept_trade=options.accept_trade,
        compound=not options.one_change,
    )
    with Progress() as progress:
        kernel, judge = _subject(root, options, function, progress, committed=True)
        outcome = run_experiment(
            idea,
            root=root,
            kernel=kernel,
            judge=judge,
            wait_s=options.wait,
            progress=_say,
        )
    return _end(root, outcome, options)


def _prepare(options: argparse.Namespace, function: JudgeFunction) -> int:
    root = _root()
    with Progress() as progress:
        kernel, judge = _subject(root, options, function, progress, committed=False)
        outcome = judge_only(root=root, kernel=kernel, judge=judge, progress=_say)
    return _end(root, outcome, options)


def _say(line: str) -> None:
    print(clean(line), file=sys.stderr)


def _end(root: Path, outcome: Outcome, options: argparse.Namespace) -> int:
    """Prune old evidence and print how a turn ended. What was recorded decides the exit code, whatever fails here."""
    with contextlib.suppress(Refusal, OSError):  # evidence that stays too long is no reason to fail
        _prune(root, outcome)
    try:
        for note in outcome.notes:
            _say(note)
        if options.json:
            _print_json(root, outcome)
        else:
            _print_report(root, outcome, deep=options.deep)
    except Exception:
        traceback.print_exc()
        _say(f"the outcome cannot be shown in full; `{options_of.PROGRAM} show {outcome.row.id}` has the row")
        if not options.json:
            score = outcome.verdict.score if outcome.verdict else None
            print(result_line(score, decision=outcome.decision or "none", status=outcome.status))
    return outcome.status.exit_code


def _prune(root: Path, outcome: Outcome) -> None:
    """Evidence of old experiments goes, that of runs that were killed among it."""
    keep = {row.id for row in (outcome.row, outcome.incumbent, outcome.baseline) if row is not None}
    evidence.prune(root, log.experiments(root), keep=keep)


def _print_json(root: Path, outcome: Outcome) -> None:
    document = verdict_document(
        outcome.verdict,
        outcome=outcome.status,
        decision=outcome.decision or None,
        reason=outcome.reason,
        id=outcome.row.id,
        commit=outcome.row.commit,
        incumbent=outcome.incumbent,
        refuted=refuted(root, outcome.row),
    )
    print(dumps(document))


def _print_report(root: Path, outcome: Outcome, *, deep: bool) -> None:
    verdict, decision = outcome.verdict, outcome.decision or "none"
    if verdict is None:
        print(f"{outcome.status.name}: {clean(outcome.reason)}")
        print(result_line(None, decision=decision, status=outcome.status))
        return
    text = report(
        verdict,
        decision=decision,
        reason=outcome.reason,
        id=outcome.row.id,
        commit=outcome.row.commit,
        incumbent=outcome.incumbent,
        outcome=outcome.status,
        refuted=refuted(root, outcome.row),
    )
    print(text)
    if deep:
        _print_blame(root / DUMPS / outcome.row.id / BLAME)
    print(result_line(verdict.score, decision=decision, status=outcome.status))


def _print_blame(path: Path) -> None:
    if path.is_file():
        print()
        for line in path.read_text().splitlines():
            # The indent keeps text of the kernel's from passing for a line of ours.
            print(f"  {line}".rstrip())


def _fidelity(_options: argparse.Namespace) -> int:
    from ratchet.loop import table  # pandas takes a second to import, which `log` need not wait for

    print(fidelity_table(table.fidelities(table.read(_root() / NAME))))
    return Status.PASS.exit_code


def _verify(_options: argparse.Namespace) -> int:
    root = _root()

    def digest(name: str) -> str:
        try:
            return evidence.digest(root, name)
        except ValueError:  # an id of a row that was not written here
            return ""

    findings = log.verify(root, evidence=digest)
    for finding in findings:
        print(f"{'BROKEN' if finding.broken else 'note'}: {clean(finding.text)}")
    if any(finding.broken for finding in findings):
        return Status.LEDGER_BROKEN.exit_code
    print(f"{len(log.rows(root))} rows: the chain is whole and every commit that should be here resolves")
    print(origins_text(log.verify_origins(root)))
    print(series_text(seal(home.judge_root(root)), PROOFS))
    return Status.PASS.exit_code


def _rebuild(_options: argparse.Namespace) -> int:
    built = log.rebuild(_root())
    print(f"results.tsv has {built.rows} rows, {built.from_head} of them from HEAD and the others from refs")
    if built.replaced:
        print(f"what was there before is kept as {built.replaced}")
    if built.left_out:
        print(f"left out, because they do not follow HEAD's last row: {', '.join(built.left_out)}")
    for note in built.notes:
        print(clean(note))
    return Status.PASS.exit_code


def _judge_target(options: argparse.Namespace, function: JudgeFunction) -> int:
    from ratchet.commands import judge

    if options.target and not judge.is_kernel_file(options):
        with Progress() as progress:
            return judge.command(options, root=_root(), function=function, progress=progress)
    options.kernel = Path(options.target) if options.target else options.kernel
    return _prepare(options, function)


def _only(options: argparse.Namespace) -> Path | None:
    """The kernel file whose rows are wanted; None for all."""
    return _kernel(options.kernel) if options.kernel is not None else None


def _served(options: argparse.Namespace) -> Path:
    """A client starts a server in any folder: the repository's file comes first."""
    here = _root() / (options.kernel or home.KERNEL)
    return here if here.is_file() else _kernel(options.kernel)


def _command(
    module: str,
    entry: str = "command",
    kernel: Callable[[argparse.Namespace], Path | None] = lambda options: _kernel(options.kernel),
) -> Callable[..., int]:
    """A function of a module in ``ratchet/commands/``, which gets what its keywords name.

    The module is imported as it is called: what it needs takes a while to import, which `log` need not wait for.
    """

    def call(options: argparse.Namespace, function: JudgeFunction | None = None) -> int:
        command = getattr(import_module(f"ratchet.commands.{module}"), entry)
        keywords = [name for name, one in signature(command).parameters.items() if one.kind is one.KEYWORD_ONLY]
        known: dict[str, Callable[[], Any]] = {
            "root": _root,
            "kernel": lambda: kernel(options),
            "function": lambda: function,
            "say": lambda: _say,
        }
        positional = [options] if len(signature(command).parameters) > len(keywords) else []
        code: int = command(*positional, **{name: known[name]() for name in keywords})
        return code

    return call


EXPERIMENTS: Mapping[str, Callable[[argparse.Namespace, JudgeFunction], int]] = {
    "run": _run,
    "prepare": _prepare,
    "sweep": _command("sweep"),
    "search": _command("search"),
    "try": _command("try_"),
    "merge": _command("merge"),
    "worker": _command("node", "worker"),
    "ablate": _command("ablate"),
    "across": _command("across", kernel=lambda options: _kernel(options.file)),
    "judge": _judge_target,
    "selftest": _command("selftest"),
}
"""What judges. Their exit codes say what came of it; those of the others, whether they could print their answer."""

COMMANDS: Mapping[str, Callable[[argparse.Namespace], int]] = {
    "ci": _command("ci"),
    "explain": _command("explain"),
    "fit": _command("fit"),
    "tune": _command("tune"),
    "upgrade-check": _command("upgrade_check"),
    "brief": _command("brief"),
    "status": _command("history", "status_command"),
    "advise": _command("advise"),
    "log": _command("history", "log_command", _only),
    "top": _command("history", "top_command", _only),
    "show": _command("history", "show_command"),
    "diff": _command("diff"),
    "mcp": _command("mcp", kernel=_served),
    "agent": _command("agent"),
    "report": _command("report"),
    "serve": _command("serve"),
    "plot": _command("plot"),
    "branches": _command("branches"),
    "node": _command("node"),
    "finalize": _command("branches", "finalize_command"),
    "verify": _verify,
    "rebuild": _rebuild,
    "fidelity": _fidelity,
    "init": _command("init"),
    "guides": _command("guides"),
    "setup": _command("setup"),
    "doctor": _command("doctor"),
    "completion": _command("completion"),
}
