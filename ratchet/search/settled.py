"""The judge of a candidate that was modelled before its turn: it is asked for the rest alone.

What other machines say can turn a candidate down and never keep one: who would be kept is judged here, in full.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from ratchet.exam.judge.request import Request
from ratchet.exam.judge.verdict_cache import KEPT
from ratchet.values import Against, Bar, Conditions, Verdict
from ratchet.wiring import DUMPS, TRACES, RepositoryJudge, make_folders, trace_of, write_views


@dataclass(frozen=True, kw_only=True)
class Settled:
    """A ``Judge`` with a verdict on latency alone, which counts where it settles the matter."""

    full: RepositoryJudge
    verdict: Verdict
    checked: Callable[[], Verdict | None] = lambda: None
    """The same kernel with its values, which another machine checked; None where nobody was asked."""

    def judge(
        self,
        kernel_path: Path,
        *,
        kernel_rel: str,
        evidence_id: str,
        against: Against | None = None,
        bar: Bar | None = None,
    ) -> Verdict:
        """The verdict there is, where the kernel was refused or is too slow for ``bar``; else a full one."""
        score = self.verdict.score
        settled: Verdict | None = self.verdict
        if score is not None and not (bar is not None and bar(score)):
            settled = self._wrong()
        if settled is not None and settled.conditions == self.conditions(kernel_rel):
            self._show(kernel_path, kernel_rel, evidence_id)
            return settled
        return self.full.judge(kernel_path, kernel_rel=kernel_rel, evidence_id=evidence_id, against=against, bar=bar)

    def _wrong(self) -> Verdict | None:
        """What another machine refused; only what the same program would be refused for again, here too."""
        checked = self.checked()
        return checked if checked is not None and checked.score is None and checked.status in KEPT else None

    def _show(self, kernel: Path, kernel_rel: str, evidence_id: str) -> None:
        """Blame and trace beside the evidence; the compiler's output of a sweep is not kept."""
        root = self.full.root
        make_folders(root)
        request = Request(
            kernel=kernel,
            root=root,
            kernel_rel=kernel_rel,
            conditions=self.verdict.conditions,
            evidence=root / DUMPS / evidence_id,
        )
        write_views(self.verdict, request, trace_of(root / TRACES, evidence_id))

    def conditions(self, kernel_rel: str) -> Conditions:
        return self.full.conditions(kernel_rel)

    def seal(self) -> str:
        return self.full.seal()

    def protected_paths(self) -> Collection[str]:
        return self.full.protected_paths()

    def evidence(self, evidence_id: str) -> str:
        return self.full.evidence(evidence_id)
