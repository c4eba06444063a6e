"""The command line's grammar: which words and options there are, and what is said about them. Runs nothing."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ratchet.exam.measure.devices import MODEL
from ratchet.exam.measure.session import BUDGET_SECONDS
from ratchet.process.boot import home
from ratchet.tpu.chips import CHIPS, V5E
from ratchet.values import MEASURED
from ratchet.values.status import Refusal, Status

PROGRAM = home.PROGRAM
RUN = "run"
_COMMANDS = {
    RUN: f'judge, keep or revert; `{PROGRAM} "message"` is the same',
    "sweep": "model many values of a file's constants, side by side, and rank them; nothing is recorded",
    "search": "try values of a file's constants as experiments, chosen by what came of those before",
    "try": "judge several versions of the kernel from one parent, side by side; the best is kept, each has a row",
    "merge": "take over the rows of another clone; its kernel is judged again here before it becomes HEAD's",
    "branches": "lines of experiments beside each other: best, rows, where they parted",
    "finalize": "a branch for review: the kept experiments alone, one commit each",
    "node": "become a node of a cluster that judges candidates for `search` and `try`, or its head",
    "worker": "what a node starts: judge what standard input asks for",
    "ablate": "take an experiment that changed several things apart, by trying its parts",
    "across": "one kernel file on every chip, as a table; writes no row",
    "explain": "where the time and the VMEM of any function go, on any chip",
    "fit": "which values of its knobs fit in the VMEM of which chip, by compiling",
    "tune": "the fastest values of a function's knobs for each of its shapes, as tables that others read; modelled",
    "ci": "what the targets of pyproject.toml cost, beside what they cost at a base revision",
    "upgrade-check": "what another JAX and libtpu change: values, latency, VMEM, copies, and in which operation",
    "brief": "what the next experiment has to know: where cycles go, what was tried, what remains",
    "status": "where the experiments are: what is kept, edited and running",
    "advise": "what to change next, with evidence and predicted gain, and the edit itself",
    "log": "the history, newest last",
    "top": "the experiments that made a kernel faster the most",
    "show": "one experiment",
    "diff": "two experiments side by side, and what explains the difference; from what is recorded",
    "report": "the history of a kernel and where its time goes, as one HTML page that needs nothing else",
    "serve": "the same page, live, while a search is under way; for this machine alone",
    "plot": "one chart of it as an SVG or PNG file",
    "verify": "check that ledger and git agree and nothing was edited",
    "rebuild": "write results.tsv anew from git",
    "fidelity": "measured over modelled latency, of the rows that have both",
    "judge": "judge a function at named shapes, a kernel file, or the project of pyproject.toml; the branch stays",
    "agent": "a command-line agent, one experiment a turn, in a work tree where only the kernel can be written",
    "mcp": "experiments as tools of the Model Context Protocol, over standard input and output",
    "init": "lay out a workspace: kernel file, protocol, rules for git; changes no file that is there",
    "guides": "write AGENTS.md and a skill file anew from program.md",
    "setup": "make the judge's own environment, once for all workspaces",
    "doctor": "what this machine can and cannot do here, and what to do about it",
    "completion": "tab completion: `source <(... completion bash)`, or for zsh",
    "selftest": "try the judge on cheats and honest kernels whose answer is known",
}
_EXPERIMENT = "options of an experiment"
_WANTED = (
    f'wanted {PROGRAM} "message" [options], the message in quotes; one that begins with a dash goes last, after --'
)
_FRESH = "judge again what was judged before: the same program under the same judge has a verdict that is remembered"
_MOST_SECONDS = 1e6
_UNITS = {"s": 1, "m": 60, "h": 3600}
_SHOWN = 60


class _Parser(argparse.ArgumentParser):
    """One whose errors are refusals, and whose options have one spelling, as ``asks_for_json`` expects."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, **settings)

    def error(self, message: str) -> Any:
        raise Refusal(Status.USAGE, f"{message}; see {self.prog} --help")


def ratchet(given: Sequence[str]) -> argparse.Namespace:
    """What ``./ratchet.sh`` was asked to do: ``name`` is the command's, and its options are beside it.

    Raises:
      Refusal: USAGE.
      SystemExit: help was asked for, and printed.
    """
    words = list(given)
    bare = words[:1] not in ([name] for name in (*_COMMANDS, "-h", "--help"))
    options, rest = ratchet_parser().parse_known_args([RUN, *words] if bare else words)
    experiment = options.name == RUN
    if rest:
        todo = _WANTED if experiment else f"see {PROGRAM} {options.name} --help"
        raise Refusal(Status.USAGE, f"too much on the command line: {' '.join(rest):.{_SHOWN}}; {todo}")
    if experiment and options.message is None:
        raise Refusal(Status.USAGE, f"there is no message: {_WANTED}; see {PROGRAM} --help")
    if experiment and bare and options.message in (*_COMMANDS, "help"):
        word = "--help" if options.message == "help" else options.message
        message = f"the whole message is {options.message!r}: did you mean `{PROGRAM} {word}`, the command first?"
        raise Refusal(Status.USAGE, f"{message} For an experiment of that name: {PROGRAM} {RUN} {options.message}")
    return options


def prepare(given: Sequence[str]) -> argparse.Namespace:
    """What ``prepare.py`` was asked to do. Raises as ``ratchet`` does."""
    parser = _Parser(
        prog="prepare.py", description="Judge the kernel file of the work tree; git's branch is left alone."
    )
    _judging(parser)
    return parser.parse_args(given)


def knows(name: str) -> bool:
    """Whether there is such a command."""
    return name in _COMMANDS


def evaluator(options: argparse.Namespace) -> str | None:
    """What is to judge a kernel file; None where the command line does not say."""
    return f"{options.chip}-model" if options.chip else options.on


def asks_for_json(given: Sequence[str]) -> bool:
    """Whether JSON is wanted, also where the rest of the command line is wrong."""
    return "--json" in itertools.takewhile(lambda word: word != "--", given)


def ratchet_parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    parser = _Parser(
        prog=PROGRAM,
        description="One experiment: judge the kernel file, then keep it as a commit or revert it.",
        usage=f'{PROGRAM} "message" [options]\n       {PROGRAM} COMMAND [options]',
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="name", required=True, prog=PROGRAM, metavar="COMMAND", title="commands")
    made = {name: commands.add_parser(name, help=text, description=text) for name, text in _COMMANDS.items()}
    run = made[RUN]
    run.prog, run.usage = PROGRAM, f'{PROGRAM} "message" [options]'
    run.add_argument("message", nargs="?", help="the experiment's commit message, verbatim")
    group = run.add_argument_group(_EXPERIMENT)
    group.add_argument("--new-problem", action="store_true", help="freeze this file's problem anew, on purpose")
    group.add_argument("--one-change", action="store_true", help="refuse a file that changes several things at once")
    group.add_argument("--accept-trade", action="store_true", help="keep a modelled gain that is too near to be ranked")
    group.add_argument(
        "--wait", type=_seconds(0), default=0, metavar="SECONDS", help="wait for another experiment to end; default 0"
    )
    _judging(group)
    sweep = made["sweep"]
    sweep.add_argument("kernel", type=Path, metavar="FILE", help="a kernel file that was judged once")
    sweep.add_argument("knobs", nargs="+", metavar="NAME=VALUES", help="a constant and its values: BQ=512,1024")
    sweep.add_argument(
        "--chip", choices=tuple(CHIPS), default=V5E.name, help=f"model it for this chip; default {V5E.name}"
    )
    sweep.add_argument("--values", action="store_true", help="check the values of every point, too")
    sweep.add_argument("--apply", action="store_true", help="write one point into the file, and model nothing")
    sweep.add_argument("--fresh", action="store_true", help=_FRESH)
    sweep.add_argument("--json", action="store_true", help="print the table as one JSON document")
    _search(made["search"])
    _try(made["try"], made["ablate"])
    _lines(made)
    _explain(made["explain"])
    _fit(made["fit"])
    _tune(made["tune"])
    _ci(made["ci"])
    _upgrade(made["upgrade-check"])
    made["across"].add_argument("file", type=Path, metavar="FILE", help="the kernel file")
    made["across"].add_argument("--json", action="store_true", help="print the table as one JSON document")
    _history(made)
    _brief(made["brief"])
    _advise(made["advise"])
    selftest = made["selftest"]
    selftest.add_argument("--quick", action="store_true", help="one cheat of each kind, a dozen honest kernels")
    selftest.add_argument("--only", default="", metavar="PATTERN", help="entries whose name or kind has this in it")
    selftest.add_argument("--json", type=Path, metavar="FILE", help="also write every result to FILE, as JSON")
    _judge(made["judge"])
    made["init"].add_argument("folder", nargs="?", type=Path, default=Path(), metavar="DIR", help="default: this one")
    made["init"].add_argument(
        "--from",
        dest="example",
        default="first",
        metavar="EXAMPLE",
        help="the kernel to begin with; default first, a small softmax",
    )
    _setup(made["setup"])
    _diff(made["diff"])
    _agent(made["agent"], made["mcp"])
    _shown(made["show"], made["report"], made["serve"], made["plot"])
    experiment = run.format_help().partition(f"{_EXPERIMENT}:")[2]
    codes = [f"  {s.exit_code:3d}  {s.name:22s} {s.meaning}" for s in sorted(Status, key=lambda s: s.exit_code)]
    parser.epilog = f"{_EXPERIMENT}:{experiment}\nexit codes:\n" + "\n".join(codes)
    return parser


def _history(made: Mapping[str, argparse.ArgumentParser]) -> None:
    for name in ("log", "top"):
        made[name].add_argument("--kernel", type=Path, metavar="FILE", help="only its rows; default: all")
    made["status"].add_argument("--kernel", type=Path, metavar="FILE", help="default: kernel.py")
    made["top"].add_argument("--most", type=_count, default=10, metavar="N", help="at most so many; default 10")
    for name in ("status", "log", "top", "show", "doctor"):
        made[name].add_argument("--json", action="store_true", help="print one JSON document")
    for name in ("status", "log", "top"):
        made[name].add_argument("--watch", action="store_true", help="again after every experiment, until interrupted")
    made["completion"].add_argument("shell", choices=("bash", "zsh"))


def _search(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kernel", nargs="?", type=Path, metavar="FILE", help="the kernel file; default: kernel.py")
    parser.add_argument(
        "--how",
        choices=("grid", "tpe", "neighbours"),
        default="tpe",
        help="every point; by Optuna's estimator (default); one or two knobs of the best point a step further",
    )
    parser.add_argument(
        "--knob", action="append", metavar="NAME=VALUES", help="BQ=128,256; default: the file's `# tune:` comments"
    )
    parser.add_argument(
        "--where", action="append", metavar="CONDITION", help="'BQ * BKV <= 2**18': what a point has to satisfy"
    )
    parser.add_argument("--budget", type=_count, default=60, metavar="N", help="at most so many trials; default 60")
    parser.add_argument("--time", type=_duration, metavar="TIME", help="begin nothing new after 90s, 30m, 2h or 1h30m")
    parser.add_argument(
        "--patience", type=_count, metavar="N", help="end after N trials without a better one; default 10 for each knob"
    )
    parser.add_argument(
        "--batch", type=_count, default=4, metavar="N", help="trials proposed at once; default 4; for many lanes more"
    )
    _branch(parser)
    _judged_side_by_side(parser)


def _try(parser: argparse.ArgumentParser, ablate: argparse.ArgumentParser) -> None:
    ablate.add_argument("id", help="an experiment's id or commit, or the beginning of it")
    _judged_side_by_side(ablate)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="versions of the kernel file, of any name")
    parser.add_argument(
        "--kernel", type=Path, metavar="FILE", help="which kernel file they replace; default: kernel.py"
    )
    parser.add_argument("--compound", action="store_true", help="also versions that change several things at once")
    _branch(parser)
    _judged_side_by_side(parser)


def _branch(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--branch",
        default="",
        metavar="NAME",
        help="go on there, in .ratchet/lines/NAME; a new one begins at HEAD",
    )
    parser.add_argument(
        "--cluster", default="", metavar="HOST:PORT", help="judge on the nodes of that Ray cluster; see `node`"
    )
    parser.add_argument(
        "--on",
        choices=MEASURED,
        default="",
        help="time it on this device, beside HEAD's kernel, in a series of its own; with --cluster on nodes with one",
    )


def _lines(made: Mapping[str, argparse.ArgumentParser]) -> None:
    _node(made["node"])
    merge, branches, finalize = made["merge"], made["branches"], made["finalize"]
    merge.add_argument("remote", metavar="REMOTE", help="a remote's name, a URL, or the folder of another clone")
    merge.add_argument(
        "--branch", default="", metavar="NAME", help="which of its branches; default: what its HEAD is on"
    )
    _judged_side_by_side(merge)
    branches.add_argument("--json", action="store_true", help="print the table as one JSON document")
    finalize.add_argument("--branch", default="", metavar="NAME", help="the line; default: the one that HEAD is on")
    finalize.add_argument("--base", default="", metavar="REV", help="where to begin; default: where the line began")
    finalize.add_argument(
        "--as", dest="name_of_branch", default="", metavar="NEW", help="the branch to make; default: review/NAME"
    )
    finalize.add_argument("--json", action="store_true", help="print one JSON document")


def _brief(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kernel", type=Path, metavar="FILE", help="default: kernel.py")
    parser.add_argument("--tokens", type=_count, default=2000, metavar="N", help="at most so many; default 2000")
    parser.add_argument("--json", action="store_true", help="print it as one JSON document")


def _advise(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kernel", nargs="?", type=Path, metavar="FILE", help="the kernel file; default: kernel.py")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--apply", type=_count, metavar="N", help="make the edit of advice N in the file")
    what.add_argument("--patch", type=_count, metavar="N", help="print the edit of advice N as a patch")
    parser.add_argument("--most", type=_count, default=5, metavar="N", help="show at most so many; default 5")
    parser.add_argument("--json", action="store_true", help="print it as one JSON document, with every edit as a patch")


def _node(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("address", nargs="?", default="", metavar="HOST:PORT", help="of the head; default: be the head")
    parser.add_argument("--listen", default="127.0.0.1", metavar="IP", help="address of this node; default 127.0.0.1")
    parser.add_argument("--port", type=_count, default=6379, metavar="N", help="of the head; default 6379")
    parser.add_argument(
        "--lanes", type=_count, metavar="N", help="candidates at once; default: by CPUs, and one for each 6 GiB"
    )
    parser.add_argument(
        "--measures",
        choices=MEASURED,
        default="",
        help="announce this device: one lane, for measured trials alone; default: tpu where one is attached",
    )
    parser.add_argument("--folder", type=Path, metavar="DIR", help="where Ray keeps its files; default: Ray's own")


def _judged_side_by_side(parser: argparse.ArgumentParser) -> None:
    """What commands have that judge several candidates of one file."""
    parser.add_argument(
        "--chip", choices=tuple(CHIPS), default=V5E.name, help=f"model it for this chip; default {V5E.name}"
    )
    parser.add_argument(
        "--wait", type=_seconds(0), default=60, metavar="SECONDS", help="wait for another experiment; default 60"
    )
    parser.add_argument("--fresh", action="store_true", help=_FRESH)
    parser.add_argument("--json", action="store_true", help="print the table as one JSON document")


def _count(text: str) -> int:
    """Reads a number of trials, from 1 on."""
    if text.isascii() and text.isdigit() and int(text[:9]) > 0 and len(text) < 9:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r:.{_SHOWN}}, wanted a number from 1 on")


def _duration(text: str) -> float:
    """Reads ``90s``, ``30m``, ``2h`` and ``1h30m`` as seconds."""
    seconds, number = 0.0, ""
    for letter in text:
        if letter in _UNITS and number:
            seconds, number = seconds + float(number) * _UNITS[letter], ""
        elif letter in "0123456789." and number.count(".") + (letter == ".") < 2:
            number += letter
        else:
            break
    else:
        if not number and 0 < seconds < _MOST_SECONDS:
            return seconds
    raise argparse.ArgumentTypeError(f"{text!r:.{_SHOWN}}, wanted a time such as 90s, 30m, 2h or 1h30m")


def _diff(parser: argparse.ArgumentParser) -> None:
    which = "an experiment's id or commit, HEAD, or a kernel file that was judged as it is"
    parser.add_argument("before", metavar="A", help=which)
    parser.add_argument("after", metavar="B", help="the same")
    parser.add_argument("--kernel", type=Path, metavar="FILE", help="whose HEAD; default: kernel.py")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def _agent(parser: argparse.ArgumentParser, mcp: argparse.ArgumentParser) -> None:
    mcp.add_argument("--kernel", type=Path, metavar="FILE", help="the one file that can be changed")
    parser.add_argument(
        "--command", required=True, metavar="WORDS", help="what to run; {brief}, {kernel}, {message} are paths"
    )
    parser.add_argument("--budget", type=_count, required=True, metavar="TURNS", help="at most so many turns")
    parser.add_argument("--kernel", type=Path, metavar="FILE", help="default: kernel.py")
    parser.add_argument(
        "--turn-seconds", type=_seconds(0, more=True), default=900, metavar="SECONDS", help="of a turn; default 900"
    )
    parser.add_argument(
        "--writable", type=Path, action="append", default=[], metavar="PATH", help="what else it may write; repeat it"
    )
    parser.add_argument(
        "--plateau", type=_count, default=12, metavar="N", help="stop after N judged in a row, none kept; default 12"
    )
    parser.add_argument(
        "--repeats", type=_count, default=3, metavar="N", help="stop after N turns in a row without news; default 3"
    )
    parser.add_argument(
        "--failures", type=_count, default=3, metavar="N", help="stop after N failed turns in a row; default 3"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def _shown(
    show: argparse.ArgumentParser,
    report: argparse.ArgumentParser,
    serve: argparse.ArgumentParser,
    plot: argparse.ArgumentParser,
) -> None:
    show.add_argument("id", help="an experiment's id or commit, or the beginning of it")
    for parser in (report, serve):
        parser.add_argument("file", nargs="?", type=Path, metavar="FILE", help="the kernel file; default: kernel.py")
    report.add_argument("-o", "--output", type=Path, metavar="HTML", help="default: report.html, here")
    report.add_argument(
        "--json", action="store_true", help="print the numbers as one JSON document; a page only with -o"
    )
    report.add_argument("--gallery", type=Path, metavar="DIR", help="instead: one page for each kernel, and an index")
    serve.add_argument("--port", type=_port, default=8790, metavar="N", help="default 8790; 0 for any that is free")
    plot.add_argument("what", choices=("trajectory", "roofline", "units", "vmem", "fidelity"), help="which chart")
    plot.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help="ends in .svg or .png")
    plot.add_argument("--kernel", type=Path, metavar="FILE", help="default: kernel.py")


def _port(text: str) -> int:
    """Reads the number of a port."""
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and int(text) < 1 << 16):
        raise argparse.ArgumentTypeError(f"{text!r:.{_SHOWN}}, wanted a port from 0 to 65535")
    return int(text)


def _explain(parser: argparse.ArgumentParser) -> None:
    _target(parser)
    parser.add_argument("--vmem", action="store_true", help="VMEM alone: by allocation, and what would free some")
    parser.add_argument("--trace", type=Path, metavar="DIR", help="also write the modelled run as XProf traces there")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def _fit(parser: argparse.ArgumentParser) -> None:
    _target(parser)
    parser.add_argument(
        "knobs", nargs="+", metavar="NAME=VALUES", help="a constant of its file or a keyword argument: BQ=512,1024"
    )
    parser.add_argument("--all", action="store_true", help="compile every point, and say whether the others followed")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def _tune(parser: argparse.ArgumentParser) -> None:
    _target(parser)
    parser.add_argument(
        "knobs", nargs="+", metavar="NAME=VALUES", help="a constant of its file or a keyword argument: BQ=512,1024"
    )
    parser.add_argument("--shapes", type=Path, metavar="FILE.json", help="its calls, as ratchet.capture wrote them")
    parser.add_argument("--out", type=Path, metavar="DIR", help="write the tables there: JSON and a Python dictionary")
    parser.add_argument("--tokamax", metavar="OP", help="also as tokamax's cache of this op, such as pallas_tpu_rope")
    parser.add_argument(
        "--tpu-inference-key", metavar="TEMPLATE", help="also as a table of tpu-inference: $x.0,$w.0,$x.dtype"
    )
    parser.add_argument("--tpu-inference-value", metavar="TEMPLATE", help="its values: [$BM, $BN]")
    parser.add_argument("--on", choices=("tpu",), help="also write the points that a TPU has to decide between")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def _ci(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--base", default="HEAD", metavar="REV", help="the revision to compare with; default HEAD")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table there, for a comment")
    parser.add_argument("--junit", type=Path, metavar="FILE", help="write the outcomes there, as JUnit XML")


def _setup(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--jax", default="", metavar="VERSION", help="one with this JAX beside it: 0.12.0.1, or 0.12.0.1+libtpu0.0.52"
    )
    parser.add_argument("--python", default="", metavar="PATH", help="the Python that --jax gets; default: this")
    parser.add_argument("--lock", type=Path, metavar="FILE", help="the packages of --jax, each with its hash")


def _upgrade(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("targets", nargs="+", metavar="TARGET", help="pkg.module:function, path/file.py:function")
    parser.add_argument(
        "--jax", action="append", required=True, metavar="VERSION", help="twice: the old one, and the new one"
    )
    parser.add_argument("--no-values", dest="values", action="store_false", help="execute nothing: compile and model")
    parser.add_argument(
        "--allowed", type=_share, default=0.02, metavar="SHARE", help="by how much a latency may grow; default 0.02"
    )
    parser.add_argument(
        "--deadline", type=_seconds(0, more=True), default=900, metavar="SECONDS", help="for each target; default 900"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    _inputs(parser)


def _target(parser: argparse.ArgumentParser) -> None:
    """Which function, for which inputs and chips."""
    parser.add_argument("target", metavar="TARGET", help="pkg.module:function, path/file.py:function or a kernel file")
    _inputs(parser)


def _inputs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--input", action="append", metavar="ARRAY", help="an argument, such as bf16[1024,256]; repeat it"
    )
    parser.add_argument("--inputs", type=Path, metavar="FILE.toml", help="named cases: inputs, options, chip")
    parser.add_argument("--case", action="append", metavar="NAME", help="of --inputs, only this case; repeat it")
    parser.add_argument(
        "--chip", action="append", choices=tuple(CHIPS), help=f"for this chip; repeat it; default {V5E.name}"
    )


def _judge(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "target",
        nargs="?",
        help="package.module:function or path/file.py:function; a kernel file; default: the project",
    )
    parser.add_argument("--inputs", type=Path, metavar="FILE", help="named problems: a TOML file with a table for each")
    parser.add_argument(
        "--input", action="append", metavar="ARRAY", help="instead: one problem's inputs, such as bf16[1024,256]"
    )
    parser.add_argument("--reference", metavar="TARGET", help="the function that says what is right")
    parser.add_argument(
        "--source", default="", metavar="DIR", help="the folder of the package; default: src, or the top"
    )
    parser.add_argument("--python", default="", metavar="PATH", help="the Python that traces it; default: the judge's")
    _judging(parser)


def _judging(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("--kernel", type=Path, metavar="FILE", help="default: kernel.py, of this repository")
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--on",
        choices=(*MEASURED, MODEL),
        help=f"time it on this device, or model it; default: an attached TPU, else {MODEL}",
    )
    where.add_argument("--chip", choices=tuple(CHIPS), help="model it for this chip, in a series of its own")
    parser.add_argument(
        "--budget",
        type=_seconds(0, more=True),
        default=BUDGET_SECONDS,
        metavar="SECONDS",
        help=f"measured: how long to time it beside the incumbent at most; default {BUDGET_SECONDS:.0f}",
    )
    parser.add_argument(
        "--deep",
        action="store_true",
        help="compare every row in float64; run in another grid order, too; keep every step of a window; print blame",
    )
    parser.add_argument("--fresh", action="store_true", help=_FRESH)
    parser.add_argument("--json", action="store_true", help="print the whole verdict as one JSON document")


def _share(text: str) -> float:
    """Reads a share from 0 to below 1."""
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share < 1:
        raise argparse.ArgumentTypeError(f"{text!r:.{_SHOWN}}, wanted a share such as 0.02")
    return share


def _seconds(least: float, *, more: bool = False) -> Callable[[str], float]:
    """Reads seconds from ``least`` on, or above it, and below a million."""

    def read(text: str) -> float:
        try:
            seconds = float(text)
        except ValueError:
            seconds = float("nan")
        if (seconds > least or (seconds == least and not more)) and seconds < _MOST_SECONDS:
            return seconds
        wanted = f"more than {least:g}" if more else f"{least:g} or more"
        raise argparse.ArgumentTypeError(f"{text!r:.{_SHOWN}}, wanted seconds: {wanted}, less than {_MOST_SECONDS:.0f}")

    return read
