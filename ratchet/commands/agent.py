"""``ratchet agent --command "…" --budget N``"""

from __future__ import annotations

import argparse
import subprocess
from collections.abc import Callable
from pathlib import Path

from ratchet.agents import program
from ratchet.agents.agent import Agent
from ratchet.agents.proposal import Target
from ratchet.commands import options as options_of
from ratchet.loop import log
from ratchet.process.sandbox import landlock
from ratchet.values.agent import Rules
from ratchet.values.status import Status
from ratchet.view.agent import run_document, run_text
from ratchet.view.document import dumps
from ratchet.view.ledger import entries, log_table
from ratchet.view.status import show
from ratchet.wiring import BLAME, DUMPS, make_folders

_ROWS, _COLUMNS = 30, 110
_BRIEF_SECONDS = 120


def command(options: argparse.Namespace, *, root: Path, kernel: Path, say: Callable[[str], None]) -> int:
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
    shown = folder.relative_to(target.root)
    if options.json:
        print(dumps(run_document(turns, end, str(shown))))
    else:
        print(run_text(turns, end, str(shown)))
    return Status.PASS.exit_code


def brief(target: Target) -> str:
    """What the command has to know: `ratchet brief`, or else history, incumbent and blame as they are printed."""
    if options_of.knows("brief"):
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
        if not done.returncode:
            return done.stdout
    rows = [row for row in log.rows(target.root) if row.kernel == target.kernel]
    parts = [f"# {target.kernel}", "## History", log_table(rows[-_ROWS:], width=_COLUMNS)]
    kept = [row for row in rows if row.in_place]
    if kept:
        parts += ["## Incumbent", show(next(one for one in entries(rows) if one.row == kept[-1]))]
        blame = target.root / DUMPS / kept[-1].id / BLAME
        if Path(kept[-1].id).name == kept[-1].id and blame.is_file():
            parts += ["## Where its cycles go", blame.read_text(errors="replace")]
    return "\n\n".join(parts) + "\n"
