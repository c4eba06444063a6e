"""The command line's grammar: its commands by name, and the options that several of them have. Runs nothing.

What a command takes is declared beside what it does, in the module that ``COMMANDS`` names. That module is imported for
the one command that is asked for.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from ratchet.exam.measure.devices import MODEL
from ratchet.exam.measure.session import BUDGET_SECONDS
from ratchet.process import paths
from ratchet.process.boot import home
from ratchet.tpu.chips import CHIPS, V5E
from ratchet.values import MEASURED
from ratchet.values.status import Refusal, Status

PROGRAM = home.PROGRAM
RUN = "run"
COMMANDS = {
    RUN: ("experiment", f'judge, keep or revert; `{PROGRAM} "message"` is the same'),
    "sweep": ("sweep", "model many values of a file's constants, side by side, and rank them; nothing is recorded"),
    "search": ("search", "try values of a file's constants as experiments, chosen by what came of those before"),
    "try": (
        "search",
        "judge several versions of the kernel from one parent, side by side; the best is kept, each has a row",
    ),
    "merge": (
        "branches",
        "take over the rows of another clone; its kernel is judged again here before it becomes HEAD's",
    ),
    "branches": ("branches", "lines of experiments beside each other: best, rows, where they parted"),
    "finalize": ("branches", "a branch for review: the kept experiments alone, one commit each"),
    "node": ("node", "become a node of a cluster that judges candidates for `search` and `try`, or its head"),
    "worker": ("node", "what a node starts: judge what standard input asks for"),
    "ablate": ("search", "take an experiment that changed several things apart, by trying its parts"),
    "across": ("experiment", "one kernel file on every chip, as a table; writes no row"),
    "explain": ("targets", "where the time and the VMEM of any function go, on any chip"),
    "fit": ("targets", "which values of its knobs fit in the VMEM of which chip, by compiling"),
    "tune": (
        "tune",
        "the fastest values of a function's knobs for each of its shapes, as tables that others read; modelled",
    ),
    "ci": ("ci", "what the targets of pyproject.toml cost, beside what they cost at a base revision"),
    "upgrade-check": (
        "upgrade_check",
        "what another JAX and libtpu change: values, latency, VMEM, copies, and in which operation",
    ),
    "brief": ("advise", "what the next experiment has to know: where cycles go, what was tried, what remains"),
    "status": ("history", "where the experiments are: what is kept, edited and running"),
    "advise": ("advise", "what to change next: edits that are modelled as faster, and the edit itself"),
    "log": ("history", "the history, newest last"),
    "top": ("history", "the experiments that made a kernel faster the most"),
    "show": ("history", "one experiment"),
    "diff": ("history", "two experiments side by side, and what explains the difference; from what is recorded"),
    "report": ("report", "the history of a kernel and where its time goes, as one HTML page that needs nothing else"),
    "serve": ("report", "the same page, live, while a search is under way; for this machine alone"),
    "plot": ("report", "one chart of it as an SVG or PNG file"),
    "verify": ("history", "check that ledger and git agree and nothing was edited"),
    "rebuild": ("history", "write results.tsv anew from git"),
    "fidelity": ("history", "measured over modelled latency, of the rows that have both"),
    "judge": (
        "experiment",
        "judge a function at named shapes, a kernel file, or the project of pyproject.toml; the branch stays",
    ),
    "agent": (
        "agent",
        "a command-line agent, one experiment a turn, in a work tree where only the kernel can be written",
    ),
    "mcp": ("agent", "experiments as tools of the Model Context Protocol, over standard input and output"),
    "init": ("workspace", "lay out a workspace: kernel file, protocol, rules for git; changes no file that is there"),
    "guides": ("workspace", "write AGENTS.md and a skill file anew from program.md"),
    "setup": ("environments", "make the judge's own environment, once for all workspaces"),
    "uninstall": ("uninstall", "what this tool made outside of repositories: listed, and removed with --yes"),
    "doctor": ("doctor", "what this machine can and cannot do here, and what to do about it"),
    "completion": ("workspace", "tab completion: `source <(... completion bash)`, or for zsh"),
    "selftest": ("selftest", "try the judge on cheats and honest kernels whose answer is known"),
}
"""Module in ``ratchet/commands/``, and purpose. It has ``NAME_command``, and ``NAME_options`` where there are any."""
_EXPERIMENT = "options of an experiment"
_WANTED = (
    f'wanted {PROGRAM} "message" [options], the message in quotes; one that begins with a dash goes last, after --'
)
_MOST_SECONDS = 1e6
_SHOWN = 60

Options = argparse._ActionsContainer
"""What an option is added to."""


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
    bare = words[:1] not in ([name] for name in (*COMMANDS, "-h", "--help"))
    words = [RUN, *words] if bare else words
    options, rest = ratchet_parser(words[:1]).parse_known_args(words)
    if getattr(options, "file_as", ""):
        rest = _read_file(options, rest)
    experiment = options.name == RUN
    if rest:
        todo = _WANTED if experiment else f"see {PROGRAM} {options.name} --help"
        raise Refusal(Status.USAGE, f"too much on the command line: {' '.join(rest):.{_SHOWN}}; {todo}")
    if experiment and options.message is None:
        raise Refusal(Status.USAGE, f"there is no message: {_WANTED}; see {PROGRAM} --help")
    if experiment and bare and options.message in (*COMMANDS, "help"):
        word = "--help" if options.message == "help" else options.message
        message = f"the whole message is {options.message!r}: did you mean `{PROGRAM} {word}`, the command first?"
        raise Refusal(Status.USAGE, f"{message} For an experiment of that name: {PROGRAM} {RUN} {options.message}")
    return options


def prepare(given: Sequence[str]) -> argparse.Namespace:
    """What ``prepare.py`` was asked to do. Raises as ``ratchet`` does."""
    parser = _Parser(
        prog="prepare.py", description="Judge the kernel file of the work tree; git's branch is left alone."
    )
    judging(parser)
    parser.set_defaults(name="prepare")
    return parser.parse_args(given)


def evaluator(options: argparse.Namespace) -> str | None:
    """What is to judge a kernel file; None where the command line does not say."""
    return f"{options.chip}-model" if options.chip else options.on


def asks_for_json(given: Sequence[str]) -> bool:
    """Whether JSON is wanted, also where the rest of the command line is wrong."""
    return "--json" in itertools.takewhile(lambda word: word != "--", given)


def function(name: str, kind: str) -> Callable[..., Any] | None:
    """``NAME_command`` or ``NAME_options`` of a command's module; None where the module has none."""
    module = "experiment" if name == "prepare" else COMMANDS[name][0]
    found: Callable[..., Any] | None = getattr(
        importlib.import_module(f"ratchet.commands.{module}"), f"{name.replace('-', '_')}_{kind}", None
    )
    return found


def ratchet_parser(asked: Collection[str] = tuple(COMMANDS)) -> argparse.ArgumentParser:
    """The parser of the command line, with the options of the commands that are asked for."""
    parser = _Parser(
        prog=PROGRAM,
        description="One experiment: judge the kernel file, then keep it as a commit or revert it.",
        usage=f'{PROGRAM} "message" [options]\n       {PROGRAM} COMMAND [options]',
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="name", required=True, prog=PROGRAM, metavar="COMMAND", title="commands")
    for name, (_, text) in COMMANDS.items():
        made = commands.add_parser(name, help=text, description=text)
        if name == RUN:
            _experiment(made)
            experiment = made.format_help().partition(f"{_EXPERIMENT}:")[2]
        elif name in asked and (declare := function(name, "options")):
            declare(made)
    codes = [f"  {s.exit_code:3d}  {s.name:22s} {s.meaning}" for s in sorted(Status, key=lambda s: s.exit_code)]
    parser.epilog = f"{_EXPERIMENT}:{experiment}\nexit codes:\n" + "\n".join(codes)
    return parser


def _experiment(run: argparse.ArgumentParser) -> None:
    run.prog, run.usage = PROGRAM, f'{PROGRAM} "message" [options]'
    run.add_argument("message", nargs="?", help="the experiment's commit message, verbatim")
    group = run.add_argument_group(_EXPERIMENT)
    group.add_argument("--new-problem", action="store_true", help="freeze this file's problem anew, on purpose")
    group.add_argument("--one-change", action="store_true", help="refuse a file that changes several things at once")
    group.add_argument("--accept-trade", action="store_true", help="keep a modelled gain that is too near to be ranked")
    group.add_argument(
        "--wait", type=seconds(), default=0, metavar="SECONDS", help="wait for another experiment to end; default 0"
    )
    judging(group)


# --- options of several commands ---


def json_option(parser: Options, help: str = "print one JSON document") -> None:
    """``--json``."""
    parser.add_argument("--json", action="store_true", help=help)


def kernel_option(parser: Options, help: str = "default: kernel.py") -> None:
    """``--kernel FILE`` alone, where other words may stand beside it."""
    parser.add_argument("--kernel", type=Path, metavar="FILE", help=help)


def kernel_file(parser: argparse.ArgumentParser, help: str = "default: kernel.py", name: str = "kernel") -> None:
    """``FILE``, or ``--kernel FILE``, which is the same; as ``name`` where ``ratchet`` has read it."""
    _file_or_kernel(parser, name, "FILE", help, Path)


def _file_or_kernel(parser: Options, name: str, metavar: str, help: str, kind: Callable[[str], object]) -> None:
    parser.add_argument("file_first", nargs="?", type=kind, metavar=metavar, help=help)
    parser.add_argument("--kernel", dest="file_named", type=kind, metavar="FILE", help="the same")
    parser.set_defaults(file_as=name, file_kind=kind)


def _read_file(options: argparse.Namespace, rest: Sequence[str]) -> list[str]:
    """Makes one of ``FILE`` and ``--kernel``; returns what of ``rest`` is neither a file nor a knob.

    ``rest`` is what argparse has no place for: words behind an option, where all before it may be left out.

    Raises:
      Refusal: USAGE where two files are named, or no knob that is wanted.
    """
    dashes = [word for word in rest if word.startswith("-")]
    plain = [word for word in rest if word not in dashes]
    first, named, kind = options.file_first, options.file_named, options.file_kind
    knobs = getattr(options, "knobs", None)
    if knobs is None:
        if first is None and plain:
            first = kind(plain.pop(0))
    else:
        words = [*([] if first is None else [str(first)]), *knobs, *plain]
        first = kind(words.pop(0)) if words and (paths.is_file(words[0]) or "=" not in words[0]) else None
        options.knobs, plain = words, []
        if not words:
            raise Refusal(Status.USAGE, "there are no knobs: wanted NAME=VALUES after the file, such as BQ=512,1024")
    if first is not None and named is not None and first != named:
        raise Refusal(Status.USAGE, f"FILE is {str(first)!r:.60} and --kernel {str(named)!r:.60}: name one of them")
    setattr(options, options.file_as, named if first is None else first)
    return [*plain, *dashes]


def count_option(parser: Options, name: str, help: str, default: int | None = None) -> None:
    """A number from 1 on."""
    said = help if default is None else f"{help}; default {default}"
    parser.add_argument(name, type=count, default=default, metavar="N", help=said)


def text_option(parser: Options, name: str, metavar: str, help: str) -> None:
    """Some text; empty where it is not given."""
    parser.add_argument(name, default="", metavar=metavar, help=help)


def fresh_option(parser: Options) -> None:
    """``--fresh``."""
    what = "judge again what was judged before: the same program under the same judge has a verdict that is remembered"
    parser.add_argument("--fresh", action="store_true", help=what)


def chip_option(parser: Options) -> None:
    """``--chip``, of a command that models."""
    parser.add_argument(
        "--chip", choices=tuple(CHIPS), default=V5E.name, help=f"model it for this chip; default {V5E.name}"
    )


def side_by_side(parser: Options) -> None:
    """What commands have that judge several candidates of one file."""
    chip_option(parser)
    parser.add_argument(
        "--wait", type=seconds(), default=60, metavar="SECONDS", help="wait for another experiment; default 60"
    )
    fresh_option(parser)
    json_option(parser, "print the table as one JSON document")


def target_options(parser: Options) -> None:
    """Which function, for which inputs and chips."""
    _file_or_kernel(
        parser,
        "target",
        "TARGET",
        "pkg.module:function, path/file.py:function or a kernel file; default: kernel.py",
        str,
    )
    inputs(parser)
    jax_option(parser, of_repository=True)


def jax_option(parser: Options, *, of_repository: bool = False) -> None:
    """``--jax``, of a command that compiles; ``of_repository``: by default what a user's repository has installed."""
    default = "the repository's, else the judge's own" if of_repository else "the judge's own"
    what = f"with this JAX, of `{PROGRAM} setup --jax VERSION`; default: {default}"
    parser.add_argument("--jax", dest="under", default="", metavar="VERSION", help=what)
    parser.set_defaults(of_repository=of_repository)


def inputs(parser: Options) -> None:
    """The inputs and chips of a target."""
    parser.add_argument(
        "--input", action="append", metavar="ARRAY", help="an argument, such as bf16[1024,256]; repeat it"
    )
    parser.add_argument(
        "--mesh", default="", metavar="AXES", help="of a slice, such as chip=8; arrays on it: bf16[2048@chip,1024]"
    )
    parser.add_argument("--inputs", type=Path, metavar="FILE.toml", help="named cases: inputs, options, chip, mesh")
    parser.add_argument("--case", action="append", metavar="NAME", help="of --inputs, only this case; repeat it")
    parser.add_argument(
        "--chip", action="append", choices=tuple(CHIPS), help=f"for this chip; repeat it; default {V5E.name}"
    )


def knobs_argument(parser: Options) -> None:
    """Knobs of a target with their values."""
    parser.add_argument(
        "knobs", nargs="*", metavar="NAME=VALUES", help="a constant of its file or a keyword argument: BQ=512,1024"
    )


def judging(parser: Options) -> None:
    """What is judged, by what, and how."""
    kernel_option(parser, "default: kernel.py, of this repository")
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--on",
        choices=(*MEASURED, MODEL),
        help=f"time it on this device, or model it; default: an attached TPU, else {MODEL}",
    )
    where.add_argument("--chip", choices=tuple(CHIPS), help="model it for this chip, in a series of its own")
    parser.add_argument(
        "--budget",
        type=seconds(more=True),
        default=BUDGET_SECONDS,
        metavar="SECONDS",
        help=f"measured: how long to time it beside the incumbent at most; default {BUDGET_SECONDS:.0f}",
    )
    parser.add_argument(
        "--deep",
        action="store_true",
        help="compare every row in float64; run in another grid order, too; keep every step of a window; print blame",
    )
    fresh_option(parser)
    json_option(parser, "print the whole verdict as one JSON document")


def count(text: str) -> int:
    """Reads a number of trials, from 1 on."""
    if text.isascii() and text.isdigit() and int(text[:9]) > 0 and len(text) < 9:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r:.{_SHOWN}}, wanted a number from 1 on")


def seconds(*, more: bool = False) -> Callable[[str], float]:
    """Reads seconds from 0 on, or more than 0, and below a million."""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if (value > 0 or (value == 0 and not more)) and value < _MOST_SECONDS:
            return value
        wanted = "more than 0" if more else "0 or more"
        raise argparse.ArgumentTypeError(f"{text!r:.{_SHOWN}}, wanted seconds: {wanted}, less than {_MOST_SECONDS:.0f}")

    return read
