"""Git, and nobody else calls it: preconditions, candidate commits, refs, and bringing files back to HEAD's.

Everything is plumbing. No hook runs, the user's index and branch move only in ``move_branch`` and
``sync_index``, and user text reaches git through standard input or as a literal path, never through a shell.

What this project keeps in git beside the branches, so that it stays resolvable and outlives any one file:

| ref | is |
|---|---|
| ``refs/ratchet/experiments/<id>`` | the commit that holds the judged kernel, kept or not |
| ``refs/ratchet/rows/<id>`` | a blob with the row's line |
| ``refs/ratchet/tips/<branch>`` | the last row that was written on that branch (``/`` and the like as ``%2F``) |
| ``refs/ratchet/replaced/<id>`` | a blob with the ledger that a rebuild replaced |
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast
from urllib.parse import quote

from ratchet.loop.ledger import NAME as LEDGER
from ratchet.loop.ledger import new_id, sync_folder, writing
from ratchet.values.status import Refusal, Status

EXPERIMENTS = "refs/ratchet/experiments/"
ROWS = "refs/ratchet/rows/"
TIPS = "refs/ratchet/tips/"
REPLACED = "refs/ratchet/replaced/"

_OPTIONS = {
    "core.hooksPath": os.devnull,
    "core.fsmonitor": "false",
    "core.safecrlf": "false",
    "core.fsync": "committed,reference",  # a row must not outlive the commit it names, not even a power cut
    "core.quotePath": "false",
    "gc.auto": "0",
    "i18n.commitEncoding": "UTF-8",
    "user.useConfigOnly": "true",  # a name guessed from the host is not an identity
}
_ENVIRONMENT = {
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_TERMINAL_PROMPT": "0",
}
# Set by a hook or an outer git, these point every git we start at another repository or index.
_MISLEADING = (
    "GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE GIT_COMMON_DIR GIT_OBJECT_DIRECTORY GIT_ALTERNATE_OBJECT_DIRECTORIES "
    "GIT_NAMESPACE GIT_PREFIX GIT_CEILING_DIRECTORIES GIT_SHALLOW_FILE GIT_GRAFT_FILE GIT_REPLACE_REF_BASE "
    "GIT_ATTR_SOURCE GIT_GLOB_PATHSPECS GIT_NOGLOB_PATHSPECS GIT_ICASE_PATHSPECS GIT_QUARANTINE_PATH "
    "GIT_INTERNAL_SUPER_PREFIX GIT_IMPLICIT_WORK_TREE GIT_CONFIG GIT_DEFAULT_HASH GIT_TRACE GIT_INDEX_VERSION"
).split()
_UNDER_WAY = {
    "MERGE_HEAD": "merge",
    "rebase-merge": "rebase",
    "rebase-apply": "rebase",
    "CHERRY_PICK_HEAD": "cherry-pick",
    "REVERT_HEAD": "revert",
    "sequencer": "cherry-pick",  # or a revert, between two commits
    "BISECT_LOG": "bisect",
}
_CONFLICTS = {"DD", "AU", "UD", "UA", "DU", "AA", "UU"}
_INDEX_PATIENCE_S = 2.0
_FULL_BYTES = 64 << 10
_LISTED = 20


@dataclass(frozen=True, kw_only=True)
class Head:
    """Where HEAD is."""

    branch: str
    """Full name, e.g. ``refs/heads/main``."""
    commit: str


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A file as git stores it."""

    mode: str
    """``100644`` or ``100755``."""
    blob: str


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A path that differs from HEAD."""

    path: str
    code: str
    """The two letters of ``git status --short``: staged, unstaged, ``??`` for untracked."""

    def __str__(self) -> str:
        return f"{self.code} {self.path!r}" if "\n" in self.path else f"{self.code} {self.path}"


class History:
    """The repository whose top folder is ``root``.

    Making one removes from this process's environment the variables that point git at another repository.

    Raises:
        Refusal: NOT_A_REPOSITORY, or INFRASTRUCTURE if there is no git.
    """

    def __init__(self, root: Path) -> None:
        for name in _MISLEADING:
            os.environ.pop(name, None)
        try:
            import git
        except ImportError as error:  # GitPython looks for the executable as it is imported
            raise Refusal(Status.INFRASTRUCTURE, "git is not installed: install it and run again") from error
        self.root = Path(os.path.realpath(root))
        self._command = git.Git(str(self.root))
        top = self._discover("--show-toplevel")
        if os.path.realpath(top) != str(self.root):
            message = f"{root} lies inside the repository {top} but is not its top: `git init` here, or run at the top"
            raise Refusal(Status.NOT_A_REPOSITORY, message)
        self.git_dir = Path(self._discover("--absolute-git-dir"))
        self.common_dir = Path(self.root, self._discover("--git-common-dir"))
        self.state_dir = self.git_dir / "ratchet"
        """Ours, per worktree: the journal and scratch files."""
        with writing(str(self.state_dir)):
            self.state_dir.mkdir(exist_ok=True)

    def _discover(self, question: str) -> str:
        code, out, error = self._run("rev-parse", question)
        if not code:
            return os.fsdecode(out.removesuffix(b"\n"))
        if "dubious ownership" in error:
            what = "belongs to another user and git will not read it"
            todo = f"`git config --global --add safe.directory '{self.root}'` if you trust it"
        else:
            what, todo = f"is not the top of a git work tree ({_first_line(error)})", "`git init` and commit first"
        raise Refusal(Status.NOT_A_REPOSITORY, f"{self.root} {what}: {todo}")

    # --- running git ---

    def _run(self, *arguments: str, stdin: bytes = b"", index: Path | None = None) -> tuple[int, bytes, str]:
        options = [word for name, value in _OPTIONS.items() for word in ("-c", f"{name}={value}")]
        environment = _ENVIRONMENT | ({"GIT_INDEX_FILE": str(index)} if index else {})
        with contextlib.ExitStack() as stack:
            source = stack.enter_context(tempfile.TemporaryFile()) if stdin else None
            if source:
                source.write(stdin)
                source.seek(0)
            result = self._command.execute(
                ["git", *options, *arguments],
                istream=source,
                env=environment,
                with_extended_output=True,
                with_exceptions=False,
                stdout_as_string=False,
                strip_newline_in_stdout=False,
                start_new_session=True,  # the terminal's Ctrl-C is for us; git finishes what it began
            )
        return cast("tuple[int, bytes, str]", result)

    def _git(self, *arguments: str, stdin: bytes = b"", index: Path | None = None) -> bytes:
        code, out, error = self._run(*arguments, stdin=stdin, index=index)
        if code:
            raise self._trouble(arguments[0], error)
        return out

    def _line(self, *arguments: str, stdin: bytes = b"", index: Path | None = None) -> str:
        return self._git(*arguments, stdin=stdin, index=index).decode().removesuffix("\n")

    def _trouble(self, command: str, error: str) -> Refusal:
        full = shutil.disk_usage(self.common_dir).free < _FULL_BYTES  # git does not always say why it could not write
        if full or "No space left" in error or "quota exceeded" in error:
            return Refusal(Status.NO_SPACE, f"no space left for git {command}: free some and run again")
        if "ermission denied" in error or "Read-only file system" in error or "not permitted" in error:
            return Refusal(Status.LEDGER_UNWRITABLE, f"git {command} cannot write: {_first_line(error)}")
        return Refusal(Status.INFRASTRUCTURE, f"git {command} failed: {_first_line(error)}")

    # --- preconditions ---

    def check_ready(self) -> Head:
        """HEAD, if the repository is in a state to experiment in. Changes nothing.

        Raises:
            Refusal: OPERATION_UNDER_WAY, NO_COMMIT, DETACHED_HEAD, SHALLOW_CLONE, NO_IDENTITY.
        """
        for name, operation in _UNDER_WAY.items():
            if (self.git_dir / name).exists():
                message = (
                    f"a {operation} is under way: finish it or `git {operation} {_way_out(operation)}`, then run again"
                )
                raise Refusal(Status.OPERATION_UNDER_WAY, message)
        head = self.head()
        if self._line("rev-parse", "--is-shallow-repository") == "true":
            message = "this is a shallow clone, where history does not resolve: `git fetch --unshallow` first"
            raise Refusal(Status.SHALLOW_CLONE, message)
        for who in ("AUTHOR", "COMMITTER"):
            code, _, error = self._run("var", f"GIT_{who}_IDENT")
            if code:
                message = (
                    f"git does not know the {who.lower()} ({_last_line(error)}): "
                    "`git config user.name NAME` and `git config user.email ADDRESS`"
                )
                raise Refusal(Status.NO_IDENTITY, message)
        return head

    def head(self) -> Head:
        """The branch HEAD is on, and its commit.

        Raises:
            Refusal: NO_COMMIT, DETACHED_HEAD.
        """
        code, out, _ = self._run("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
        if code:
            raise Refusal(
                Status.NO_COMMIT, "the repository has no commit yet: `git add` your files and `git commit` first"
            )
        detached, branch, _ = self._run("symbolic-ref", "--quiet", "HEAD")
        if detached or not branch.startswith(b"refs/heads/"):
            message = (
                f"HEAD is detached at {out[:10].decode()}, wanted a branch: `git switch BRANCH` or `git switch -c NEW`"
            )
            raise Refusal(Status.DETACHED_HEAD, message)
        return Head(branch=os.fsdecode(branch.removesuffix(b"\n")), commit=out.decode().strip())

    def differences(self) -> tuple[Difference, ...]:
        """Every path that differs from HEAD: staged, unstaged, or untracked and not ignored."""
        out = self._git(
            "status", "--porcelain=v1", "-z", "--untracked-files=all", "--no-renames", "--ignore-submodules=none"
        )
        found = (os.fsdecode(record) for record in out.split(b"\0") if record)
        return tuple(Difference(code=record[:2], path=record[3:]) for record in found)

    def check_clean(self, *, allowed: Iterable[str], sealed: Iterable[str] = ()) -> None:
        """Raises:
        Refusal: DIRTY with the list of paths, other than ``allowed``, that differ from HEAD; SEAL_BROKEN if one
            of them belongs to the judge; OPERATION_UNDER_WAY if an allowed path has an unresolved conflict.
        """
        allowed, sealed = set(allowed), set(sealed)
        found = self.differences()
        if conflicts := [d.path for d in found if d.path in allowed and d.code in _CONFLICTS]:
            message = f"{conflicts[0]} has an unresolved conflict: resolve it and `git add` it, then run again"
            raise Refusal(Status.OPERATION_UNDER_WAY, message)
        others = [difference for difference in found if difference.path not in allowed]
        if touched := [difference.path for difference in others if difference.path in sealed]:
            message = (
                f"the judge differs from HEAD: {', '.join(touched)}; `git checkout HEAD -- FILE`, or commit the change"
            )
            raise Refusal(Status.SEAL_BROKEN, message)
        if others:
            shown = ", ".join(map(str, others[:_LISTED]))
            more = f" and {len(others) - _LISTED} more" if len(others) > _LISTED else ""
            message = f"files other than the kernel differ from HEAD: {shown}{more}; commit, ignore or remove them"
            raise Refusal(Status.DIRTY, message)

    # --- objects ---

    def entry(self, commit: str, path: str) -> Entry | None:
        """The file ``path`` in ``commit``, or None if there is no such file."""
        for record in self._git("ls-tree", "-z", "--full-tree", commit, "--", path).split(b"\0"):
            kind, _, name = record.partition(b"\t")
            if os.fsdecode(name) == path and kind.startswith(b"100"):
                mode, _, blob = kind.decode().split(" ")
                return Entry(mode=mode, blob=blob)
        return None

    def blob(self, blob: str) -> bytes:
        """The bytes of a blob."""
        return self._git("cat-file", "blob", blob)

    def store(self, data: bytes) -> str:
        """Stores ``data`` as it is and returns the blob's hash."""
        return self._line("hash-object", "-w", "--stdin", stdin=data)

    def file_entry(self, path: str, head: Entry | None) -> Entry | None:
        """Stores the working tree's file ``path`` as ``git add`` would; None if there is no such file.

        Raises:
            Refusal: USAGE if it is not a regular file.
        """
        try:
            status = os.lstat(self.root / path)
            if not stat.S_ISREG(status.st_mode):
                raise Refusal(Status.USAGE, f"{path} is not a regular file: name the file itself")
            data = (self.root / path).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise Refusal(Status.NOT_FOUND, f"{path} cannot be read: {error.strerror}") from error
        trusted = self._run("config", "--type=bool", "core.fileMode")[1].strip() != b"false"
        executable = status.st_mode & stat.S_IXUSR if trusted or head is None else head.mode == "100755"
        blob = self._line("hash-object", "-w", "--stdin", f"--path={path}", stdin=data)
        return Entry(mode="100755" if executable else "100644", blob=blob)

    def commit(self, *, parent: str, files: Mapping[str, Entry], message: str) -> str:
        """A commit on ``parent`` with ``files`` changed; no branch, index or working file is touched."""
        index = self.state_dir / "index"
        for leftover in (index, index.with_name("index.lock")):
            leftover.unlink(missing_ok=True)
        try:
            self._git("read-tree", parent, index=index)
            self._git("update-index", "-z", "--index-info", stdin=_index_info(files), index=index)
            tree = self._line("write-tree", index=index)
        finally:
            index.unlink(missing_ok=True)
        text = message.encode("utf-8", "backslashreplace")  # git reads bytes that are not UTF-8 as Latin-1
        return self._line("commit-tree", tree, "-p", parent, "-F", "-", stdin=text)

    def unresolved(self, names: Iterable[str]) -> set[str]:
        """Those of ``names`` that are not hashes of objects that are here."""
        names = set(names)
        asked = [name for name in names if re.fullmatch("[0-9a-f]{40,64}", name)]
        out = self._git("cat-file", "--batch-check", stdin="".join(f"{name}\n" for name in asked).encode())
        here = {name for name, answer in zip(asked, out.splitlines(), strict=True) if not answer.endswith(b" missing")}
        return names - here

    # --- refs ---

    def refs(self, prefix: str) -> dict[str, str]:
        """Object hashes by ref name without ``prefix``."""
        out = self._git("for-each-ref", "--format=%(objectname) %(refname)", prefix)
        pairs = (os.fsdecode(line).split(" ", 1) for line in out.splitlines())
        return {name.removeprefix(prefix): target for target, name in pairs}

    def set_refs(self, targets: Mapping[str, str]) -> None:
        """Points each ref at its object, all or none."""
        text = "".join(f"update {name}\0{target}\0\0" for name, target in targets.items())
        self._git("update-ref", "--stdin", "-z", stdin=text.encode())

    def reserve_id(self, last: str, commit: str) -> str:
        """An experiment id that sorts after ``last`` and that nobody else has, its ref at ``commit`` for now.

        Git creates a ref only once, so runs that do not hold the lock cannot take the same id.
        """
        name = max([last, *self.refs(EXPERIMENTS)])
        while True:
            name = new_id(name)
            code, _, error = self._run("update-ref", EXPERIMENTS + name, commit, "0" * len(commit))
            if not code:
                return name
            if "already exists" not in error and "File exists" not in error:
                raise self._trouble("update-ref", error)

    def delete_ref(self, name: str) -> None:
        """Removes one of this project's refs, if it is there."""
        self._git("update-ref", "-d", name)

    def row_lines(self) -> dict[str, str]:
        """The lines of all rows that git holds, by id."""
        refs = self.refs(ROWS)
        if not refs:
            return {}
        out = self._git("cat-file", "--batch", stdin="".join(f"{blob}\n" for blob in refs.values()).encode())
        lines, at = {}, 0
        for name in refs:
            header, _, _ = out[at:].partition(b"\n")
            start = at + len(header) + 1
            at = start + int(header.split()[2]) + 1
            lines[name] = out[start : at - 1].decode()
        return lines

    def tip(self, branch: str) -> str | None:
        """The line of the last row written on ``branch``, if any was here."""
        code, out, _ = self._run("cat-file", "blob", tip_ref(branch))
        return None if code else out.decode()

    def move_branch(self, branch: str, *, new: str, old: str, reason: str) -> None:
        """Moves ``branch`` from ``old`` to ``new``, or not at all.

        Raises:
            Refusal: BRANCH_MOVED if the branch is not at ``old`` any more.
        """
        code, _, error = self._run("update-ref", "-m", reason, branch, new, old)
        if not code:
            return
        if " but expected " in error or "unable to resolve" in error:
            message = f"{branch.removeprefix('refs/heads/')} moved from {old[:10]} while the experiment ran"
            raise Refusal(Status.BRANCH_MOVED, message)
        raise self._trouble("update-ref", error)

    def resolve(self, name: str) -> str | None:
        """The hash a ref points at, or None."""
        code, out, _ = self._run("rev-parse", "--verify", "--quiet", name)
        return None if code else out.decode().strip()

    def is_ancestor(self, one: str, other: str) -> bool:
        """Whether commit ``one`` is ``other`` or one of its ancestors."""
        return self._run("merge-base", "--is-ancestor", one, other)[0] == 0

    # --- the user's index and files ---

    def sync_index(self, *, old: str, new: str, paths: Iterable[str], judged: Iterable[str] = ()) -> str | None:
        """Brings the user's index from ``old`` to ``new`` for ``paths``; anything else staged there is left alone.

        ``judged`` are further blobs that may be replaced. Returns what to do by hand if the index is locked.
        """
        wanted: dict[str, Entry] = {}
        removed = Entry(mode="0", blob="0" * len(new))
        for path in paths:
            before, after = self.entry(old, path), self.entry(new, path)
            staged = self._staged(path)
            known = {staged and staged.blob} <= {before and before.blob, after and after.blob, *judged}
            if staged != after and (known or path == LEDGER):  # the ledger only grows: HEAD has what was staged
                wanted[path] = after or removed
        deadline = time.monotonic() + _INDEX_PATIENCE_S
        while wanted:
            code, _, error = self._run("update-index", "-z", "--index-info", stdin=_index_info(wanted))
            if not code:
                # Plumbing such as diff-index compares file times first: let it find them up to date.
                self._run("update-index", "-q", "--refresh")
                break
            if "index.lock" not in error or time.monotonic() > deadline:
                return (
                    f"the index is locked ({_first_line(error)}); afterwards run `git reset -q -- {' '.join(wanted)}`"
                )
            time.sleep(0.1)
        return None

    def _staged(self, path: str) -> Entry | None:
        out = self._git("ls-files", "-s", "-z", "--", path)
        fields = out.partition(b"\t")[0].decode().split()
        return Entry(mode=fields[0], blob=fields[1]) if fields else None

    def restore(self, path: str, *, blob: str | None, judged: str | None) -> bool:
        """Brings the file ``path`` back to ``blob`` (None: no file), if its content is still ``judged``.

        Returns False, and changes nothing, if the file holds something else by now.
        """
        target = self.root / path
        spare = target.with_name(f".{hashlib.sha256(path.encode('utf-8', 'surrogateescape')).hexdigest()[:12]}.ratchet")
        with writing(path), contextlib.suppress(FileNotFoundError, NotADirectoryError):
            spare.unlink()  # of a run that was killed here
        now = self.file_entry(path, None)
        here = now.blob if now else None
        if here == blob:
            return True
        if here != judged:
            return False
        with writing(path):
            if blob is None:
                target.unlink()
            else:
                data = self._git("cat-file", "--filters", f"--path={path}", blob)
                self._replace(target, spare, data)
            sync_folder(target.parent)
        return True

    @staticmethod
    def _replace(target: Path, spare: Path, data: bytes) -> None:
        """Write beside and rename, keeping mode and owner."""
        status = target.stat() if target.exists() else None
        try:
            with open(spare, "wb") as file:
                if status:
                    os.fchmod(file.fileno(), stat.S_IMODE(status.st_mode))
                    with contextlib.suppress(PermissionError):
                        os.fchown(file.fileno(), status.st_uid, status.st_gid)
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(spare, target)
        except OSError:
            spare.unlink(missing_ok=True)
            raise


def tip_ref(branch: str) -> str:
    """The ref of the last row written on ``branch``; flat, so that branches ``a`` and ``a/b`` may follow each other."""
    name = quote(branch.removeprefix("refs/heads/"), safe="", errors="surrogateescape")
    return TIPS + (name if len(name) <= 200 else hashlib.sha256(name.encode()).hexdigest())


def _index_info(files: Mapping[str, Entry]) -> bytes:
    return b"".join(
        f"{entry.mode} {entry.blob}\t".encode() + os.fsencode(path) + b"\0" for path, entry in files.items()
    )


def _first_line(error: str) -> str:
    return next((line for line in error.splitlines() if line.strip()), "no message")


def _last_line(error: str) -> str:
    return next((line for line in reversed(error.splitlines()) if line.strip()), "no message")


def _way_out(operation: str) -> str:
    return "reset" if operation == "bisect" else "--abort"
