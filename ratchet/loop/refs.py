"""What this project keeps in git beside the branches, and how a branch moves.

So that it stays resolvable and outlives any one file:

| ref | is |
|---|---|
| ``refs/ratchet/experiments/<id>`` | the commit that holds the judged kernel, kept or not |
| ``refs/ratchet/rows/<id>`` | a blob with the row's line |
| ``refs/ratchet/macs/<id>`` | a blob with the MAC of that line, where the machine that wrote it has a key |
| ``refs/ratchet/tips/<branch>`` | the last row that was written on that branch (``/`` and the like as ``%2F``) |
| ``refs/ratchet/replaced/<id>`` | a blob with the ledger that a rebuild replaced |
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from urllib.parse import quote

from ratchet.loop.ledger import new_id
from ratchet.loop.objects import contents
from ratchet.loop.plumbing import Git
from ratchet.values.status import Refusal, Status

EXPERIMENTS = "refs/ratchet/experiments/"
ROWS = "refs/ratchet/rows/"
MACS = "refs/ratchet/macs/"
TIPS = "refs/ratchet/tips/"
REPLACED = "refs/ratchet/replaced/"
_PART_BYTES = 240
"""Of a branch's name between slashes: a file is called so, and git's lock of it has five more."""


class Refs:
    """The refs of a repository."""

    def __init__(self, git: Git) -> None:
        self._git = git

    def under(self, prefix: str) -> dict[str, str]:
        """Object hashes by ref name without ``prefix``."""
        out = self._git.output("for-each-ref", "--format=%(objectname) %(refname)", prefix)
        pairs = (os.fsdecode(line).split(" ", 1) for line in out.splitlines())
        return {name.removeprefix(prefix): target for target, name in pairs}

    def point(self, targets: Mapping[str, str]) -> None:
        """Points each ref at its object, all or none."""
        text = "".join(f"update {name}\0{target}\0\0" for name, target in targets.items())
        self._git.output("update-ref", "--stdin", "-z", stdin=text.encode())

    def reserve_id(self, last: str, commit: str) -> str:
        """An experiment id that sorts after ``last`` and that nobody else has, its ref at ``commit`` for now.

        Git creates a ref only once, so runs that do not hold the lock cannot take the same id.
        """
        name = max([last, *self.under(EXPERIMENTS)])
        while True:
            name = new_id(name)
            code, _, error = self._git.run("update-ref", EXPERIMENTS + name, commit, "0" * len(commit))
            if not code:
                return name
            if "already exists" not in error and "File exists" not in error:
                raise self._git.trouble("update-ref", error)

    def delete(self, name: str) -> None:
        """Removes one of this project's refs, if it is there."""
        self._git.output("update-ref", "-d", name)

    def texts(self, prefix: str) -> dict[str, str]:
        """The texts that the refs below ``prefix`` point at, by name without it: of ``ROWS``, all rows git holds."""
        refs = self.under(prefix)
        texts = (data.decode(errors="replace") for data in contents(self._git, list(refs.values())))
        return dict(zip(refs, texts, strict=True))

    def tip(self, branch: str) -> str | None:
        """The line of the last row written on ``branch``, if any was here."""
        code, out, _ = self._git.run("cat-file", "blob", tip_ref(branch))
        return None if code else out.decode()

    def move_branch(self, branch: str, *, new: str, old: str, reason: str) -> None:
        """Moves ``branch`` from ``old`` to ``new``, or not at all.

        Raises:
            Refusal: BRANCH_MOVED if the branch is not at ``old`` any more.
        """
        code, _, error = self._git.run("update-ref", "-m", reason, branch, new, old)
        if not code:
            return
        if " but expected " in error or "unable to resolve" in error:
            message = f"{branch.removeprefix('refs/heads/')} moved from {old[:10]} while the experiment ran"
            raise Refusal(Status.BRANCH_MOVED, message)
        raise self._git.trouble("update-ref", error)

    def resolve(self, name: str) -> str | None:
        """The hash a ref points at, or None."""
        code, out, _ = self._git.run("rev-parse", "--verify", "--quiet", name)
        return None if code else out.decode().strip()

    def is_branch_name(self, name: str) -> bool:
        """Whether git takes ``name`` for a branch."""
        good = not name.startswith(("-", "refs/")) and name != "HEAD"
        good = good and all(len(os.fsencode(part)) <= _PART_BYTES for part in name.split("/"))
        return good and self._git.run("check-ref-format", f"refs/heads/{name}")[0] == 0

    def own_line(self, tip: str, base: str = "") -> tuple[str, ...]:
        """The commits of a line, oldest first, after ``base``; of a merge only the side it was made on."""
        span = [tip, f"^{base}"] if base else [tip]
        return tuple(self._git.output("rev-list", "--first-parent", "--reverse", *span).decode().split())

    def is_ancestor(self, one: str, other: str) -> bool:
        """Whether commit ``one`` is ``other`` or one of its ancestors."""
        return self._git.run("merge-base", "--is-ancestor", one, other)[0] == 0


def tip_ref(branch: str) -> str:
    """The ref of the last row written on ``branch``; flat, so that branches ``a`` and ``a/b`` may follow each other."""
    name = quote(branch.removeprefix("refs/heads/"), safe="", errors="surrogateescape")
    return TIPS + (name if len(name) <= 200 else hashlib.sha256(name.encode()).hexdigest())
