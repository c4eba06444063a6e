"""The judge as the loop sees it: one object."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Protocol

from ratchet.values import Against, Bar, Conditions, Verdict


class Judge(Protocol):
    """Says what a kernel is worth, under which conditions, and by which files."""

    def judge(
        self,
        kernel_path: Path,
        *,
        kernel_rel: str,
        evidence_id: str,
        against: Against | None = None,
        bar: Bar | None = None,
    ) -> Verdict:
        """Judge the file ``kernel_path``, whose bytes will not change, as the kernel ``kernel_rel`` of the repository.

        ``evidence_id`` names the folders for its evidence. It may write the kernel's problem lock beside the kernel in
        the work tree, and no other file there that git does not ignore. Where it measures, it times the kernel beside
        the incumbent, ``against``. Where it models, it need not check the values of a kernel that ``bar`` turns down.
        """

    def conditions(self, kernel_rel: str) -> Conditions:
        """What a kernel would be judged under now. Cheap."""

    def seal(self) -> str:
        """Digest of the files that a verdict follows from, asked before and after judging."""

    def protected_paths(self) -> Collection[str]:
        """The judge's files, relative to the repository's top: a change there is SEAL_BROKEN and not DIRTY."""

    def evidence(self, evidence_id: str) -> str:
        """Digest of an experiment's evidence, for its row; ``""`` where there is none."""
