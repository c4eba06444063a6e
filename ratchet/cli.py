"""The command line: wiring, printing, exit codes. The only module that knows every room."""

from __future__ import annotations

import argparse
import errno
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ratchet import options as options_of
from ratchet.candidate import problem as problems
from ratchet.chips import CHIPS, V5E, Chip
from ratchet.compiler.environment import compiler_version
from ratchet.judge import evidence as evidence_room
from ratchet.judge.seal import seal, sealed_paths
from ratchet.loop import log
from ratchet.loop.experiment import Outcome, judge_only, run_experiment
from ratchet.measure import devices
from ratchet.starting import starting
from ratchet.values import MEASURED, Against, Conditions, Row, Verdict
from ratchet.values.status import Refusal, Status
from ratchet.view import verdict_json
from ratchet.view.blame import blame_text
from ratchet.view.log import fidelity_table, log_table, show
from ratchet.view.progress import Progress
from ratchet.view.streams import Lasting, lasting
from ratchet.view.terminal import report, result_line
from ratchet.view.text import clean
from ratchet.view.xspace import trace_path, write_xspace

DUMPS, TRACES = evidence_room.FOLDERS
BLAME = "blame.txt"
"""The blame table of an experiment, beside its dumps."""
KERNEL = "kernel.py"
"""The kernel file that is judged where none is named."""


def main(arguments: Sequence[str] | None = None) -> int:
    """``./ratchet.sh``: returns the process's exit code."""
    return _guarded(options_of.ratchet, sys.argv[1:] if arguments is None else arguments)


def prepare_main(arguments: Sequence[str]) -> int:
    """``python prepare.py``: judge the working tree, leave the branch alone."""
    return _guarded(options_of.prepare, arguments)


def _guarded(parse: Callable[[Sequence[str]], argparse.Namespace], given: Sequence[str]) -> int:
    """Parse and run; every failure ends in one or two lines and its own exit code."""
    with lasting() as output:
        code = _outcome(parse, given, output)
        try:
            output.check()
        except OSError as error:  # an experiment's outcome stands, whether or not it could be told
            said = f"standard output cannot be written ({error.strerror}): the exit code is {code}"
            print(f"{said}, and `{options_of.PROGRAM} log` has what was recorded", file=sys.stderr)
        return code


def _outcome(parse: Callable[[Sequence[str]], argparse.Namespace], given: Sequence[str], output: Lasting) -> int:
    as_json = options_of.asks_for_json(given)
    try:
        options = parse(given)
        name = getattr(options, "name", "prepare")
        code = COMMANDS[name](options)
        if name not in EXPERIMENTS:
            output.check()
        return code
    except Refusal as refusal:
        return _refused(refusal.status, refusal.message, as_json)
    except KeyboardInterrupt:
        return _refused(Status.INTERRUPTED, Status.INTERRUPTED.meaning, as_json)
    except OSError as error:
        no_space = error.errno in (errno.ENOSPC, errno.EDQUOT)
        status = Status.NO_SPACE if no_space else Status.INFRASTRUCTURE
        where = f" ({error.filename})" if error.filename else ""
        return _refused(status, f"{error.strerror or error}{where}: free or repair that and run again", as_json)
    except Exception:
        traceback.print_exc()
        return _refused(Status.INTERNAL, Status.INTERNAL.meaning, as_json)


def _refused(status: Status, message: str, as_json: bool) -> int:
    print(f"{status.name}: {clean(message)}", file=sys.stderr)
    if as_json:
        document = verdict_json.verdict_document(None, outcome=status, decision=None, reason=message)
        print(verdict_json.dumps(document))
    else:
        print(result_line(None, decision="none", status=status))
    return status.exit_code


def _root() -> Path:
    return Path(__file__).resolve().parent.parent


def _kernel(given: Path | None) -> Path:
    """The kernel file: relative to where the caller stands if it is there, else to the repository.

    Where none is named, the repository's own ``kernel.py``: another one may lie where the caller stands.
    """
    if given is None:
        return _root() / KERNEL
    return given.resolve() if given.exists() else _root() / given


def _chip(evaluator: str) -> Chip:
    """The chip that is modelled: the attached one where a TPU is timed."""
    return CHIPS[devices.device(evaluator)] if evaluator == "tpu" else V5E


def conditions(root: Path, kernel_rel: str, evaluator: str = devices.MODEL) -> Conditions:
    """What a kernel would be judged under now.

    Raises:
      Refusal: ``UNSUPPORTED_PLATFORM`` where there is no such device or compiler.
    """
    lock = problems.lock_path(root / kernel_rel)
    problem = problems.read(lock)
    measured = evaluator in MEASURED
    return Conditions(
        evaluator=evaluator,
        chip=devices.device(evaluator) if measured else V5E.name,
        compiler=devices.compiler(evaluator) if measured else compiler_version(),
        seal=seal(root),
        problem=problem.short if problem else "",
    )


def _wire(root: Path, options: argparse.Namespace, progress: Progress) -> Callable[..., Verdict]:
    """The judge as the loop calls it: ``prepare.judge`` and the trace of what it modelled."""
    with starting():  # NumPy is imported here, and takes an interrupt for an error of its own
        from prepare import judge

    on = _evaluator(options)

    def judged(kernel_path: Path, *, kernel_rel: str, evidence_id: str, against: Against | None = None) -> Verdict:
        dumps = root / DUMPS / evidence_id
        for folder in (DUMPS, TRACES):
            (root / folder).mkdir(exist_ok=True)
            if not (root / folder / ".gitignore").exists():
                (root / folder / ".gitignore").write_text("*\n")
        verdict = judge(
            kernel_path,
            root=root,
            kernel_rel=kernel_rel,
            conditions=conditions(root, kernel_rel, on),
            evidence=dumps,
            chip=_chip(on),
            against=against,
            budget_s=options.budget,
            capture=root / TRACES / evidence_id / "measured",
            new_problem=getattr(options, "new_problem", False),
            deep=options.deep,
            progress=progress,
        )
        if verdict.timeline is not None:
            source = kernel_path.read_text(errors="replace")
            table = blame_text(verdict.timeline, title=verdict.kernel_name, kernel_file=kernel_path.name, source=source)
            (dumps / BLAME).write_text(table + "\n")
            proto = dumps / "optimized.hlo.pb"
            problem = problems.read(problems.lock_path(root / kernel_rel))
            write_xspace(
                verdict.timeline,
                trace_path(root / TRACES, evidence_id),
                title=verdict.kernel_name,
                flops=problem.flops if problem else 0,
                hlo_module=proto.read_bytes() if proto.exists() else None,
            )
        return verdict

    return judged


def _evaluator(options: argparse.Namespace) -> str:
    """What judges. Refuses at once where there is no such device."""
    evaluator = options.on or devices.preferred()
    if evaluator in MEASURED:
        devices.peak(evaluator, devices.device(evaluator))
    return evaluator


def _run(options: argparse.Namespace) -> int:
    root, on = _root(), _evaluator(options)
    with Progress() as progress:
        outcome = run_experiment(
            root=root,
            kernel=_kernel(options.kernel),
            message=options.message,
            judge=_wire(root, options, progress),
            conditions=lambda kernel: conditions(root, kernel, on),
            seal=lambda: seal(root),
            sealed=sealed_paths(root),
            evidence=lambda name: evidence_room.digest(root, name),
            new_problem=options.new_problem,
            wait_s=options.wait,
            progress=lambda line: print(clean(line), file=sys.stderr),
        )
    return _told(root, outcome, options)


def _prepare(options: argparse.Namespace) -> int:
    root = _root()
    with Progress() as progress:
        outcome = judge_only(
            root=root,
            kernel=_kernel(options.kernel),
            judge=_wire(root, options, progress),
            evidence=lambda name: evidence_room.digest(root, name),
            progress=lambda line: print(clean(line), file=sys.stderr),
        )
    return _told(root, outcome, options)


def _told(root: Path, outcome: Outcome, options: argparse.Namespace) -> int:
    """Print how a turn ended and prune old evidence."""
    row, verdict = outcome.row, outcome.verdict
    rows = log.rows(root)
    keep = {r.id for r in (row, outcome.incumbent, outcome.baseline) if r is not None}
    evidence_room.prune(root, [r.id for r in rows], keep=keep)
    decision = outcome.decision or "none"
    for note in outcome.notes:
        print(clean(note), file=sys.stderr)
    if options.json:
        document = verdict_json.verdict_document(
            verdict,
            outcome=outcome.status,
            decision=outcome.decision or None,
            reason=outcome.reason,
            id=row.id,
            commit=row.commit,
            incumbent=outcome.incumbent,
        )
        print(verdict_json.dumps(document))
    elif verdict is None:
        print(f"{outcome.status.name}: {clean(outcome.reason)}")
        print(result_line(None, decision=decision, status=outcome.status))
    else:
        print(
            report(
                verdict,
                decision=decision,
                reason=outcome.reason,
                id=row.id,
                commit=row.commit,
                incumbent=outcome.incumbent,
                outcome=outcome.status,
            )
        )
        blame = root / DUMPS / row.id / BLAME
        if options.deep and blame.is_file():
            print()
            for line in blame.read_text().splitlines():
                # The indent keeps text of the kernel's from passing for a line of ours.
                print(f"  {line}".rstrip())
        print(result_line(verdict.score, decision=decision, status=outcome.status))
    return outcome.status.exit_code


def _log(options: argparse.Namespace) -> int:
    rows = log.rows(_root())
    if options.kernel is not None:
        kernel = _kernel(options.kernel)
        rows = tuple(row for row in rows if _root() / row.kernel == kernel)
    print(log_table(rows, terminal=sys.stdout.isatty()))
    return Status.PASS.exit_code


def _show(options: argparse.Namespace) -> int:
    row: Row = log.find(_root(), options.id)
    print(show(row))
    if Path(row.id).name == row.id and (_root() / DUMPS / row.id / BLAME).is_file():
        print(f"  {'blame':<12} {DUMPS}/{row.id}/{BLAME}")
    return Status.PASS.exit_code


def _fidelity(_options: argparse.Namespace) -> int:
    print(fidelity_table(log.rows(_root())))
    return Status.PASS.exit_code


def _verify(_options: argparse.Namespace) -> int:
    root = _root()

    def evidence(name: str) -> str:
        try:
            return evidence_room.digest(root, name)
        except ValueError:  # an id of a row that was not written here
            return ""

    findings = log.verify(root, evidence=evidence)
    for finding in findings:
        print(f"{'BROKEN' if finding.broken else 'note'}: {clean(finding.text)}")
    if any(finding.broken for finding in findings):
        return Status.LEDGER_BROKEN.exit_code
    print(f"{len(log.rows(_root()))} rows: the chain is whole and every commit that should be here resolves")
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


COMMANDS: Mapping[str, Callable[[argparse.Namespace], int]] = {
    "run": _run,
    "prepare": _prepare,
    "log": _log,
    "show": _show,
    "verify": _verify,
    "rebuild": _rebuild,
    "fidelity": _fidelity,
}
EXPERIMENTS = ("run", "prepare")
"""Their exit codes tell what was recorded; that of the others, whether they could print what they were asked for."""


if __name__ == "__main__":
    sys.exit(main())
