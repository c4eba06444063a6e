"""A whole ``./ratchet.sh`` with its real judge, ended at random times; its children have to end by themselves."""

from __future__ import annotations

import os
import random
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.lib.faults.scene import Complain, Tally
from ratchet.values import Decision
from ratchet.values.status import Status
from tests.workspaces import BETTER, Workspace

PATIENCE_S = 1200.0
ENDINGS = (Status.PASS.exit_code, Status.NO_CHANGE.exit_code)


@dataclass
class Whole:
    """A repository with this tree and a small kernel, judged once."""

    space: Workspace
    complain: Complain
    chance: random.Random
    seconds: float = 0.0
    """Of a turn that nobody ends."""

    @classmethod
    def new(cls, folder: Path, complain: Complain, chance: random.Random) -> Whole:
        whole = cls(space=Workspace.new(folder / "whole"), complain=complain, chance=chance)
        (whole.space.root / "tests.txt").write_text("the user's\n")
        whole.space.git("add", "tests.txt")
        whole.space.git("commit", "-q", "-m", "a file of the user's")
        start = time.monotonic()
        done = whole.space.ratchet("baseline")
        whole.seconds = time.monotonic() - start
        if done.returncode:
            raise RuntimeError(f"the baseline fails: {done.stdout}{done.stderr}")
        return whole

    def strikes(self, kills: int) -> Tally:
        """Turns that are ended one after the other, each on what the one before left, and one that may end."""
        tally, space = Tally(), self.space
        space.edit(BETTER)
        for _ in range(kills):
            tally.strikes += 1
            before = space.ledger.read_bytes()
            where = f"whole turn, {self._kill():.1f} s"
            if not space.ledger.read_bytes().startswith(before):
                tally.rows_lost += 1
                self.complain(f"{where}: the ledger does not begin as before")
            self._verify(tally, where)
        before, done = space.rows(), space.ratchet("an idea")
        kept = [row.commit for row in space.rows() if row.decision == Decision.KEPT]
        # A turn may have been ended after it had kept the kernel: then there is nothing to judge any more.
        if done.returncode not in ENDINGS or kept != [space.git("rev-parse", "HEAD")]:
            tally.unfinished += 1
            self.complain(f"the turn after all strikes: exit code {done.returncode}: {done.stderr}")
        tally.rows_lost += sum(row not in space.rows() for row in before)
        lost = [row for row in space.rows() if space.git("cat-file", "-t", row.commit) != "commit"]
        tally.commits_lost += len(lost)
        tally.files_changed += space.read("tests.txt") != "the user's\n"
        self._verify(tally, "the turn after all strikes")
        return tally

    def _kill(self) -> float:
        """Ends a turn after a while; returns when, in seconds. What it printed to is closed once its children ended."""
        process = self.space.start(str(self.space.root / "ratchet.sh"), "an idea")
        seconds = self.chance.uniform(0.0, self.seconds)
        time.sleep(seconds)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=PATIENCE_S)
        return seconds

    def _verify(self, tally: Tally, where: str) -> None:
        done = self.space.ratchet("verify")
        if done.returncode or "not signed" in done.stdout or "BROKEN" in done.stdout:
            tally.verify_failures += 1
            self.complain(f"{where}: verify: {done.stdout}{done.stderr}")
