"""Running git, and nobody else does: its options, its environment, and what its failures are to a user.

Everything is plumbing. No hook runs, and user text reaches git through standard input or as a literal path, never
through a shell.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from ratchet.loop.ledger import writing
from ratchet.process.root import Root
from ratchet.values.status import Refusal, Status

_OPTIONS = {
    "core.hooksPath": os.devnull,
    "core.fsmonitor": "false",
    "core.safecrlf": "false",
    "core.fsync": "committed,reference,index",  # a row must not outlive the commit it names, not even a power cut
    "core.quotePath": "false",
    "gc.auto": "0",
    "i18n.commitEncoding": "UTF-8",
    "user.useConfigOnly": "true",  # a name guessed from the host is not an identity
}
_ENVIRONMENT = {
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_NO_LAZY_FETCH": "1",  # the repository's own configuration says by which program
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_ALLOW_PROTOCOL": "file:http:https:ssh",  # of the others some run a command that a remote's address names
    "GIT_TERMINAL_PROMPT": "0",
}
# Set by a hook or an outer git, these point every git we start at another repository or index.
_MISLEADING = (
    "GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE GIT_COMMON_DIR GIT_OBJECT_DIRECTORY GIT_ALTERNATE_OBJECT_DIRECTORIES "
    "GIT_NAMESPACE GIT_PREFIX GIT_CEILING_DIRECTORIES GIT_SHALLOW_FILE GIT_GRAFT_FILE GIT_REPLACE_REF_BASE "
    "GIT_ATTR_SOURCE GIT_GLOB_PATHSPECS GIT_NOGLOB_PATHSPECS GIT_ICASE_PATHSPECS GIT_QUARANTINE_PATH "
    "GIT_INTERNAL_SUPER_PREFIX GIT_IMPLICIT_WORK_TREE GIT_CONFIG GIT_DEFAULT_HASH GIT_TRACE GIT_INDEX_VERSION"
).split()
_FULL_BYTES = 64 << 10
_WRITTEN = {".": 1, "refs": 50, "logs": 50, "objects": 1, "info": 1}
"""Folders that git writes in, and so many levels of those below."""
_PROGRAMS = r"^(filter\..*|core\.(sshcommand|askpass|alternaterefscommand)|credential\..*helper|remote\..*\.vcs)$"
_INSTEAD = {"core.sshcommand": "ssh", "core.alternaterefscommand": ":"}
_OWN = ("local", "worktree")
"""Scopes of git's configuration that are files of the repository."""


class Git:
    """Git in the repository whose top folder is ``root``.

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
        self._ready = False
        self._options = [f"{name}={value}" for name, value in _OPTIONS.items()]
        self._command = git.Git(str(self.root))
        top, git_dir, common_dir = self._discover("--show-toplevel", "--absolute-git-dir", "--git-common-dir")
        if os.path.realpath(top) != str(self.root):
            message = f"{root} is inside the repository {top} but is not its top: `git init` here, or run at the top"
            raise Refusal(Status.NOT_A_REPOSITORY, message)
        self.tree = Root(self.root)
        if (there := self.tree.state(".git")) is not None and stat.S_ISLNK(there.st_mode):
            message = f"{self.root}/.git is a symbolic link, wanted the folder itself: put it there"
            raise Refusal(Status.NOT_A_REPOSITORY, message)
        self.git_dir = Path(git_dir)
        self.common_dir = Path(os.path.normpath(self.root / common_dir))
        for folder in dict.fromkeys((self.git_dir, self.common_dir)):
            self._check_links(Root(folder))
        with writing(str(self.git_dir / "ratchet")):
            Root(self.git_dir).make_folder("ratchet")
        self._options = [*self._options, *self._without_programs()]
        self._ready = True

    def _discover(self, *questions: str) -> list[str]:
        code, out, error = self.run("rev-parse", *questions)
        if not code:
            answers = os.fsdecode(out.removesuffix(b"\n")).split("\n")
            if len(questions) == 1:
                return ["\n".join(answers)]
            if len(answers) == len(questions):
                return answers
            return [answer for question in questions for answer in self._discover(question)]  # a path has a line end
        if "dubious ownership" in error:
            what = "belongs to another user and git will not read it"
            todo = f"`git config --global --add safe.directory '{self.root}'` if you trust it"
        else:
            what, todo = f"is not the top of a git work tree ({first_line(error)})", "`git init` and commit first"
        raise Refusal(Status.NOT_A_REPOSITORY, f"{self.root} {what}: {todo}")

    def _check_links(self, folder: Root) -> None:
        """Git writes through the links that it finds: into other folders, and at the end of other files.

        Raises:
            Refusal: NOT_A_REPOSITORY.
        """
        links = (one for part, levels in _WRITTEN.items() for one in folder.links(part, levels=levels))
        if link := next(links, ""):
            message = f"{folder.path / link} is a symbolic link, and git would write where it leads: remove it"
            raise Refusal(Status.NOT_A_REPOSITORY, message)

    def _without_programs(self) -> list[str]:
        """Options in the place of those of the repository's own configuration that name programs.

        Filters, run on any file, are switched off. What fetches is as the user's own settings have it.
        """
        _, out, _ = self.run("config", "--includes", "--show-scope", "-z", "--get-regexp", _PROGRAMS)
        words = os.fsdecode(out).split("\0")
        said = [(scope, *one.partition("\n")[::2]) for scope, one in zip(words[::2], words[1::2], strict=False)]
        own = dict.fromkeys(name for scope, name, _ in said if scope in _OWN)
        options = []
        for name in own:
            if name.startswith("filter."):
                group = name.rpartition(".")[0]
                options += [f"{group}.{switch}" for switch in ("clean=", "smudge=", "process=", "required=false")]
            else:
                others = [f"{name}={value}" for scope, one, value in said if one == name and scope not in _OWN]
                options += [f"{name}={_INSTEAD.get(name, '')}", *others]
        return options

    def run(self, *arguments: str, stdin: bytes = b"", index: Path | None = None) -> tuple[int, bytes, str]:
        """Exit code, standard output and standard error of a git command; ``index`` takes the place of the user's."""
        options = [word for one in self._options for word in ("-c", one)]
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
        code, out, error = cast("tuple[int, bytes, str]", result)
        if code < 0:
            error = f"it was ended by signal {-code}\n{error}"
            if self._ready:  # what it held is nobody's now
                clear(root=self.root, common_dir=self.common_dir, git_dir=self.git_dir)
        return code, out, error

    def output(self, *arguments: str, stdin: bytes = b"", index: Path | None = None) -> bytes:
        """Standard output of a git command that has to succeed.

        Raises:
            Refusal: as ``trouble``.
        """
        code, out, error = self.run(*arguments, stdin=stdin, index=index)
        if code:
            raise self.trouble(arguments[0], error)
        return out

    def line(self, *arguments: str, stdin: bytes = b"", index: Path | None = None) -> str:
        """``output`` of a command that prints one line."""
        return self.output(*arguments, stdin=stdin, index=index).decode().removesuffix("\n")

    def trouble(self, command: str, error: str) -> Refusal:
        """Why a git command failed: NO_SPACE, LEDGER_UNWRITABLE or INFRASTRUCTURE."""
        if tempfile.gettempdir() in error and "diskspace" in error:  # of its index
            todo = "free some, or set TMPDIR to a folder that has it, and run again"
            return Refusal(Status.NO_SPACE, f"no space left for git {command} in {tempfile.gettempdir()}: {todo}")
        full = shutil.disk_usage(self.common_dir).free < _FULL_BYTES  # git does not always say why it could not write
        if full or "No space left" in error or "quota exceeded" in error:
            return Refusal(Status.NO_SPACE, f"no space left for git {command}: free some and run again")
        if "ermission denied" in error or "Read-only file system" in error or "not permitted" in error:
            return Refusal(Status.LEDGER_UNWRITABLE, f"git {command} cannot write: {first_line(error)}")
        return Refusal(Status.INFRASTRUCTURE, f"git {command} failed: {first_line(error)}")


def first_line(error: str) -> str:
    """The first line of what git said that holds anything."""
    return next((line for line in error.splitlines() if line.strip()), "no message")


PATIENCE_S = 10.0
_OF_WORKTREE = ("index.lock", "HEAD.lock")
_OF_REPOSITORY = ("packed-refs.lock", "HEAD.lock")
_REFS = ("refs/heads", "refs/ratchet")
_PROC = Path("/proc")


def clear(*, root: Path, common_dir: Path, git_dir: Path, patience_s: float = PATIENCE_S) -> tuple[str, ...]:
    """Removes git's locks in ``git_dir`` and ``common_dir`` if no git works there any more; says which those were.

    ``git_dir`` is that of the worktree in which it was killed, ``root`` the top of this one. Nothing is removed
    where a git is still at work after ``patience_s`` seconds, or where that cannot be known.
    """
    locks = sorted(set(_locks(common_dir, git_dir)))
    if not locks:
        return ()
    deadline = time.monotonic() + patience_s
    while working := _working(root, common_dir, git_dir):
        if time.monotonic() > deadline:
            return (f"git is at work here (process {working[0]}), so its locks stay: {_named(locks, common_dir)}",)
        time.sleep(0.05)
    if not Root(_PROC).exists("."):
        return ()
    gone = []
    for lock in locks:
        with contextlib.suppress(OSError):
            if Root(git_dir if lock.is_relative_to(git_dir) else common_dir).unlink(lock):
                gone.append(lock)
    return (f"removed locks of git that a killed run left: {_named(gone, common_dir)}",) if gone else ()


def _locks(common_dir: Path, git_dir: Path) -> Iterator[Path]:
    own, common = Root(git_dir), Root(common_dir)
    yield from (git_dir / name for name in _OF_WORKTREE if own.is_file(name))
    yield from (common_dir / name for name in _OF_REPOSITORY if common.is_file(name))
    for folder in _REFS:
        yield from (common_dir / name for name in common.files(folder) if name.endswith(".lock"))


def _named(locks: list[Path], common_dir: Path) -> str:
    return ", ".join(os.path.relpath(lock, common_dir) for lock in locks)


def _working(*folders: Path) -> list[int]:
    """Processes of git whose folder is one of these or below, or whose command line names one."""
    found = []
    system = Root(_PROC)
    for process in filter(str.isdigit, system.names()):
        with contextlib.suppress(OSError):
            if not system.read(f"{process}/comm").startswith(b"git"):
                continue
            here = Path(os.readlink(_PROC / process / "cwd"))
            line = system.read(f"{process}/cmdline")
            if any(here.is_relative_to(folder) or os.fsencode(folder) in line for folder in folders):
                found.append(int(process))
    return found
