"""``agent`` and ``mcp``: experiments by a command-line agent, and as tools of the Model Context Protocol."""

from __future__ import annotations

import argparse
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ratchet.agents import program
from ratchet.agents.agent import Agent
from ratchet.agents.proposal import Target
from ratchet.commands.options import count, count_option, json_option, kernel_file, seconds
from ratchet.loop import log
from ratchet.process import paths
from ratchet.process.boot import home
from ratchet.process.sandbox import landlock
from ratchet.values.agent import Rules, Stop, Turn
from ratchet.values.status import Refusal, Status
from ratchet.view.document import Table, dumps, or_null, plain
from ratchet.view.ledger import log_table
from ratchet.view.text import clean, columns
from ratchet.wiring import make_folders

_ROWS, _COLUMNS, _WHY = 30, 110, 120
_BRIEF_SECONDS = 120


def agent_options(parser: argparse.ArgumentParser) -> None:
    """A command, its turns, and when to stop."""
    parser.add_argument(
        "--command", required=True, metavar="WORDS", help="what to run; {brief}, {kernel}, {message} are paths"
    )
    parser.add_argument("--budget", type=count, required=True, metavar="TURNS", help="at most so many turns")
    kernel_file(parser)
    parser.add_argument(
        "--turn-seconds", type=seconds(more=True), default=900, metavar="SECONDS", help="of a turn; default 900"
    )
    parser.add_argument(
        "--writable", type=Path, action="append", default=[], metavar="PATH", help="what else it may write; repeat it"
    )
    count_option(parser, "--plateau", "stop after N judged in a row, none kept", 12)
    count_option(parser, "--repeats", "stop after N turns in a row without news", 3)
    count_option(parser, "--failures", "stop after N failed turns in a row", 3)
    json_option(parser)


def agent_command(options: argparse.Namespace, *, root: Path, kernel: Path, say: Callable[[str], None]) -> int:
    """Run the agent until a rule stops it, and print what became of each turn."""
    target = Target.of(root, kernel)
    make_folders(root)
    if not landlock.version():
        say("this machine has no Landlock: only permissions and hashes keep the command to the kernel file")
    agent = Agent(
        target=target,
        command=options.command,
        seconds=options.turn_seconds,
        rules=Rules(budget=options.budget, plateau=options.plateau, repeats=options.repeats, failures=options.failures),
        writable=tuple(path.expanduser().resolve() for path in options.writable),
        brief=lambda: brief(target),
        say=say,
    )
    folder, turns, end = agent.run()
    shown = str(folder.relative_to(target.root))
    print(dumps(run_document(turns, end, shown)) if options.json else run_text(turns, end, shown))
    return Status.PASS.exit_code


def brief(target: Target) -> str:
    """What the command has to know: what `ratchet brief` says, or else the newest rows."""
    done = subprocess.run(
        [*program.command(), "brief", "--kernel", target.kernel],
        cwd=target.root,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=_BRIEF_SECONDS,
        check=False,
    )
    rows = [row for row in log.rows(target.root) if row.kernel == target.kernel]
    return log_table(rows[-_ROWS:], width=_COLUMNS) if done.returncode else done.stdout


def run_text(turns: Sequence[Turn], end: Stop, folder: str) -> str:
    """A line for each turn, and why no further one was taken."""
    rows = [
        [
            str(turn.number),
            turn.ending.value,
            f"{turn.seconds:.0f} s",
            clean(turn.id, 24),
            clean(turn.status, 24),
            clean(turn.decision, 24),
            clean(turn.note, 60),
            clean(turn.why, _WHY),
        ]
        for turn in turns
    ]
    lines = columns([["turn", "ended", "took", "experiment", "status", "decision", "note", "why"], *rows])
    return "\n".join([*(f"  {line}" for line in lines), f"stopped: {end.value}", f"transcripts: {clean(folder)}"])


def run_document(turns: Sequence[Turn], end: Stop, folder: str) -> dict[str, Any]:
    """The same as plain JSON values."""
    of_turn: Table = {
        "turn": "number",
        "ending": lambda turn: turn.ending.name.lower(),
        ...: (),
        **or_null("id", "status", "decision", "why"),
    }
    return {"stopped": end.name.lower(), "folder": folder, "turns": plain(turns, {Turn: of_turn})}


# --- mcp ---


def mcp_options(parser: argparse.ArgumentParser) -> None:
    """The kernel file."""
    kernel_file(parser, "the one file that can be changed")


def mcp_command(options: argparse.Namespace, *, root: Path, say: Callable[[str], None]) -> int:
    """Serve until the client closes the streams. Standard output is the protocol's: a refusal goes to ``say``."""
    here = root / (options.kernel or home.KERNEL)  # a client starts a server in any folder
    try:
        _serve(root, here if paths.is_file(here) else home.kernel(root, options.kernel))
    except Refusal as refusal:
        say(f"{refusal.status.name}: {refusal.message}")
        return refusal.status.exit_code
    return Status.PASS.exit_code


def _serve(root: Path, kernel: Path) -> None:
    try:
        from ratchet.agents.server import Tools, server
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("mcp", "mcp_types", "anyio"):
            raise
        todo = "it is the extra `mcp` of this package, and in requirements.lock"
        what = "the package mcp is not in the judge's environment"
        raise Refusal(Status.UNSUPPORTED_PLATFORM, f"{what}: {todo}") from None
    tools = Tools(target=Target.of(root, kernel))
    tools.target.head()  # there is one
    server(tools).run("stdio")
