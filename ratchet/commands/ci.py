"""``ratchet ci``: what the targets of ``[tool.ratchet]`` cost now, beside what they cost at a base revision."""

from __future__ import annotations

import argparse
import io
import re
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ratchet.commands.options import jax_option
from ratchet.commands.targets import Compilers, folder_for, title_of
from ratchet.exam.candidate import configuration
from ratchet.exam.candidate import target as targets
from ratchet.exam.candidate.target import Case, Exported
from ratchet.loop.compare import TRADE_APART
from ratchet.loop.plumbing import Git
from ratchet.process import paths
from ratchet.process.root import Root
from ratchet.tpu.chips import CHIPS
from ratchet.values import Explanation
from ratchet.values.change import Change, Costs, outcome
from ratchet.values.status import Ended, Refusal, Status
from ratchet.view.changes import change_line, code, counted, junit, markdown

_OF_THE_JUDGE = frozenset({Status.NOT_FOUND, Status.USAGE})
"""Of an export: what the judge says itself. Other refusals quote the user's code, which may have read what it says."""
_PLACE = re.compile(r"([\w./-]{1,120}\.py):\d{1,6}(?=: )", re.ASCII)
_KEYS = frozenset({"target", "inputs", "cases", "options", "chips", "allowed_share"})


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A target of the list, one case of it and a chip."""

    target: str
    case: Case
    allowed_share: float

    @property
    def title(self) -> str:
        return title_of(self.target, self.case)


def ci_options(parser: argparse.ArgumentParser) -> None:
    """A revision, and files for what is found."""
    parser.add_argument("--base", default="HEAD", metavar="REV", help="the revision to compare with; default HEAD")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table there, for a comment")
    parser.add_argument("--junit", type=Path, metavar="FILE", help="write the outcomes there, as JUnit XML")
    jax_option(parser, of_repository=True)


def ci_command(options: argparse.Namespace, *, say: Callable[[str], None]) -> int:
    """Compare the work tree with a revision. ``REGRESSED`` where a target got slower or no longer compiles, else
    ``UNSETTLED`` where a process was killed or ran out of time or memory."""
    root = top(Path.cwd())
    now = list(read(root))
    for path in filter(None, (options.markdown, options.junit)):
        folder_for(path)
    changes: list[Change] = []
    with tempfile.TemporaryDirectory(prefix="ratchet-") as folder, Compilers.start() as compilers:
        base = checkout(root, options.base, Path(folder))
        entries, notes = _agreed(list(read(base)), now)
        for note in notes:
            say(note)
        if not entries:
            wanted = 'wanted [[tool.ratchet.ci]] tables with target = "package.module:function" and inputs'
            raise Refusal(Status.NOT_FOUND, f"{root / configuration.FILE} has no list tool.ratchet.ci: {wanted}")
        for entry in entries:
            changes.append(_change(entry, root, base, compilers))
            say(change_line(changes[-1]))
    text = markdown(changes, base=options.base, notes=notes)
    for path, content in ((options.markdown, text + "\n"), (options.junit, junit(changes))):
        if path is not None:
            paths.write_named(path, content.encode())
    print(text if options.markdown is None else counted(changes))
    return outcome(one.kind for one in changes).exit_code


def top(folder: Path) -> Path:
    """The top of the git work tree that ``folder`` is in. Raises Refusal ``NOT_A_REPOSITORY``."""
    found = next((one for one in (folder, *folder.parents) if paths.exists(one / ".git")), None)
    if found is None:
        raise Refusal(Status.NOT_A_REPOSITORY, f"{folder} is in no git work tree: run it in your repository")
    return found


def read(root: Path) -> Iterator[Entry]:
    """The targets of the configuration, in its order, one for each case and chip; none where there is no list.

    Raises:
      Refusal: ``USAGE`` for what is wrong in it.
    """
    listed = configuration.table(root).get("ci", [])
    wanted = 'wanted [[tool.ratchet.ci]] tables with target = "package.module:function" and inputs = ["bf16[8,128]"]'
    if not isinstance(listed, list):
        raise Refusal(Status.USAGE, f"{configuration.FILE}: tool.ratchet.ci: {wanted}")
    for number, table in enumerate(listed, 1):
        where = f"{configuration.FILE}: tool.ratchet.ci, entry {number}"
        if not isinstance(table, Mapping) or not isinstance(table.get("target"), str):
            raise Refusal(Status.USAGE, f"{where}: {wanted}")
        if unknown := sorted(set(table) - _KEYS):
            raise Refusal(Status.USAGE, f"{where} has {unknown[0]!r:.40}; it may have {', '.join(sorted(_KEYS))}")
        yield from _entries(table, root, where)


def _entries(table: Mapping[str, Any], root: Path, where: str) -> Iterator[Entry]:
    allowed, chips = table.get("allowed_share", TRADE_APART), table.get("chips", [])
    if not configuration.is_share(allowed):
        raise Refusal(Status.USAGE, f"{where}: allowed_share is {allowed!r:.40}, wanted {configuration.SHARE}")
    if not isinstance(chips, list) or not all(chip in CHIPS for chip in chips):
        raise Refusal(Status.USAGE, f"{where}: chips is {chips!r:.60}, wanted some of {', '.join(CHIPS)}")
    files = [table["target"].partition(":")[0]] if ".py" in table["target"] else []
    for name in (*files, *([str(table["cases"])] if "cases" in table else [])):
        configuration.inside(root, name, where)
    if "cases" in table:
        cases = targets.cases(root / str(table["cases"]))
    else:
        alone = {"inputs": table.get("inputs", targets.GENERATOR), "options": table.get("options", {})}
        cases = tuple(replace(case, name="") for case in targets.cases_of({"inputs": alone}, where))
    for case in cases:
        for chip in chips or [case.chip]:
            yield Entry(target=table["target"], case=replace(case, chip=chip), allowed_share=float(allowed))


def _agreed(base: Sequence[Entry], now: Sequence[Entry]) -> tuple[list[Entry], tuple[str, ...]]:
    """What is judged: the list of the base, and what is new in this one. Also what the change does to the list.

    Whoever makes a change does not decide by the same change what it is judged by.
    """
    before, after = ({(one.title, one.case.chip): one for one in side} for side in (base, now))
    notes = []
    for key, one in before.items():
        said, new = f"`{code(one.title)}` on {one.case.chip}", after.get(key)
        if new is None:
            notes.append(f"{said}: this change takes it off the list; it is judged as the base lists it")
            continue
        if new.allowed_share != one.allowed_share:
            shares = f"{one.allowed_share:g} of the base, not {new.allowed_share:g}"
            notes.append(f"{said}: this change sets another allowed_share; it is judged by {shares}")
        if new.case != one.case:
            notes.append(f"{said}: this change gives it other inputs or options; it is judged by those of the base")
    came = [one for key, one in after.items() if key not in before]
    notes += [f"`{code(one.title)}` on {one.case.chip}: this change puts it on the list" for one in came if before]
    return [*before.values(), *came], tuple(notes)


def checkout(root: Path, revision: str, folder: Path) -> Path:
    """The files of a revision, in ``folder``; the repository stays as it is.

    Raises:
      Refusal: ``NOT_FOUND`` for what is no revision here.
    """
    git = Git(root)
    code, commit, _ = git.run("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    if code:
        raise Refusal(Status.NOT_FOUND, f"{revision!r:.80} is no revision here: fetch it, or name one with --base")
    archive = git.output("archive", "--format=tar", commit.decode().strip())
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extraction_filter = _inside if hasattr(tarfile, "data_filter") else None  # from Python 3.11.4 on
        tar.extractall(folder)
    return folder


def _inside(member: tarfile.TarInfo, folder: str) -> tarfile.TarInfo | None:
    """A file as it is written; none for a link that leads out of the repository."""
    try:
        return tarfile.data_filter(member, folder)
    except tarfile.FilterError:
        return None


def _change(entry: Entry, root: Path, base: Path, compilers: Compilers) -> Change:
    """Programs of the same bytes are compiled once."""
    now, then = _exported(entry, root), _exported(entry, base)
    after = _costs(entry, now, compilers)
    before: Costs | None
    if isinstance(then, Refusal):
        before = None if then.status is Status.NOT_FOUND else _refused(then)
    elif not isinstance(now, Refusal) and now.program == then.program:
        before = after
    else:
        before = _costs(entry, then, compilers)
    return Change(
        target=entry.title, chip=entry.case.chip, before=before, after=after, allowed_share=entry.allowed_share
    )


def _exported(entry: Entry, folder: Path) -> Exported | Refusal:
    """The program that a folder's files make of an entry, or why there is none, without a word of their author's."""
    named = entry.target.partition(":")[0].endswith(".py")
    text = str(folder / entry.target) if named else entry.target
    try:
        if named and not Root(folder).is_file(entry.target.partition(":")[0]):
            raise Refusal(Status.NOT_FOUND, f"there is no file {entry.target}: name one as path/file.py:function")
        return targets.export(targets.parse(text, folders=(folder / "src", folder)), entry.case)
    except Refusal as refusal:
        if refusal.status in (Status.INTERRUPTED, Status.NO_SPACE, Status.INFRASTRUCTURE):
            raise
        if refusal.status in _OF_THE_JUDGE:
            return refusal
        place = _PLACE.match(refusal.message)
        where = f"{place[0]}: " if place and Root(folder).is_file(place[1]) else ""
        todo = "what it says is its author's and not shown here; `ratchet explain` shows it"
        return type(refusal)(refusal.status, f"{where}{refusal.status.meaning}; {todo}")


def _costs(entry: Entry, exported: Exported | Refusal, compilers: Compilers) -> Costs:
    if isinstance(exported, Refusal):
        return _refused(exported)
    try:
        explanation = compilers.explained(exported, entry.case.chip, entry.title)
    except Refusal as refusal:
        if refusal.status in (Status.INTERRUPTED, Status.NO_SPACE, Status.INFRASTRUCTURE):
            raise
        return _refused(refusal)
    return costs_of(explanation)


def _refused(refusal: Refusal) -> Costs:
    status = Status.UNSETTLED if isinstance(refusal, Ended) else refusal.status
    return Costs(status=status, reason=refusal.message)


def costs_of(explanation: Explanation) -> Costs:
    """The numbers of an explanation that are compared."""
    footprint = explanation.footprint
    vmem: Sequence[Any] = [one for one in explanation.vmem if one.is_kernel] or explanation.vmem
    moved = [copy for copy in explanation.copies if copy.injected and copy.kind != "prefetch"]
    return Costs(
        status=Status.UNSETTLED if explanation.ended else explanation.status,
        reason=explanation.reason,
        compiler=explanation.compiler,
        latency_ms=explanation.timeline.latency_ms if explanation.timeline else None,
        vmem_bytes=vmem[0].used_bytes if vmem else 0,
        vmem_limit_bytes=vmem[0].limit_bytes if vmem else 0,
        spills=footprint.spills if footprint else 0,
        copies=len(moved),
        copy_bytes=sum(copy.size_bytes for copy in moved),
    )
