"""Bad states of a repository: each has its status, says what to do, judges nothing and changes nothing."""

from collections.abc import Callable
from pathlib import Path

import pytest

from ratchet.values import Decision
from ratchet.values.status import Refusal, Status
from tests.loop.stage import NO_FILES, Stage, kernel_text


def refused(stage: Stage, status: Status, *expected: str, message: str = "an idea", **options: object) -> str:
    before = snapshot(stage)
    with pytest.raises(Refusal) as refusal:
        stage.run(message, **options)
    assert refusal.value.status is status, refusal.value.message
    for words in expected:
        assert words in refusal.value.message
    assert stage.judged == []
    assert snapshot(stage) == before
    return refusal.value.message


def snapshot(stage: Stage) -> object:
    files = {path: path.read_bytes() for path in stage.root.rglob("*") if path.is_file() and ".git" not in path.parts}
    return files, stage.git("for-each-ref", check=False), stage.git("status", "--porcelain", check=False)


def test_not_a_repository(tmp_path: Path) -> None:
    stage = Stage(root=tmp_path)
    stage.write(kernel_text(1.0))
    refused(stage, Status.NOT_A_REPOSITORY, "git init")


def test_a_folder_inside_another_repository(stage: Stage) -> None:
    inner = Stage(root=stage.root / "inner")
    inner.write(kernel_text(1.0))
    refused(inner, Status.NOT_A_REPOSITORY, "is not its top")


def test_a_bare_repository(tmp_path: Path) -> None:
    stage = Stage(root=tmp_path)
    stage.git("init", "-q", "--bare")
    refused(stage, Status.NOT_A_REPOSITORY)


def test_a_repository_of_another_user(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")  # git's own way to test this
    refused(stage, Status.NOT_A_REPOSITORY, "belongs to another user", "safe.directory")


def test_no_commit(tmp_path: Path) -> None:
    stage = Stage(root=tmp_path / "repository")
    stage.root.mkdir()
    stage.git("init", "-q")
    stage.write(kernel_text(1.0))
    refused(stage, Status.NO_COMMIT, "git commit")


@pytest.mark.parametrize("missing", ["user.name", "user.email"])
def test_no_identity(stage: Stage, missing: str) -> None:
    stage.git("config", "--unset", missing)
    stage.write(kernel_text(2000.0))
    refused(stage, Status.NO_IDENTITY, f"git config {missing}")


def test_an_identity_in_the_environment_will_do(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.git("config", "--remove-section", "user")
    for who in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{who}_NAME", "From The Environment")
        monkeypatch.setenv(f"GIT_{who}_EMAIL", "environment@example.invalid")
    stage.write(kernel_text(2000.0))
    assert stage.run("better").decision == Decision.KEPT
    assert stage.git("log", "-1", "--format=%an") == "From The Environment"


def test_detached_head(stage: Stage) -> None:
    stage.git("checkout", "-q", "--detach")
    refused(stage, Status.DETACHED_HEAD, "git switch")


def conflict(stage: Stage) -> None:
    stage.git("checkout", "-q", "-b", "side")
    (stage.root / "other.txt").write_text("side\n")
    stage.git("commit", "-q", "-a", "-m", "side")
    stage.git("checkout", "-q", "main")
    (stage.root / "other.txt").write_text("main\n")
    stage.git("commit", "-q", "-a", "-m", "main")


@pytest.mark.parametrize("operation", ["merge", "rebase", "cherry-pick", "revert", "bisect"])
def test_operation_under_way(stage: Stage, operation: str) -> None:
    conflict(stage)
    if operation == "bisect":
        stage.git("bisect", "start")
    else:
        stage.git(operation, "side", check=False)
    refused(stage, Status.OPERATION_UNDER_WAY, operation)


def test_between_two_commits_of_a_cherry_pick(stage: Stage) -> None:
    conflict(stage)
    stage.git("checkout", "-q", "side")
    (stage.root / "new.txt").write_text("new\n")
    stage.git("add", "new.txt")
    stage.git("commit", "-q", "-m", "one more")
    stage.git("checkout", "-q", "main")
    stage.git("cherry-pick", "main..side", check=False)
    stage.git("checkout", "-q", "HEAD", "--", "other.txt")
    stage.git("commit", "-q", "--allow-empty", "-m", "resolved")
    refused(stage, Status.OPERATION_UNDER_WAY, "cherry-pick")


def test_a_kernel_with_an_unresolved_conflict(stage: Stage) -> None:
    stage.write(kernel_text(2.0))
    stage.git("stash")
    stage.write(kernel_text(3.0))
    stage.git("commit", "-q", "-a", "-m", "three")
    stage.git("stash", "pop", check=False)
    refused(stage, Status.OPERATION_UNDER_WAY, "kernel.py", "conflict")


def test_shallow_clone(stage: Stage, tmp_path: Path) -> None:
    stage.write(kernel_text(2.0))
    stage.git("commit", "-q", "-a", "-m", "second")
    refused(stage.clone(tmp_path / "clone", "--depth=1"), Status.SHALLOW_CLONE, "--unshallow")


def test_dirty_lists_every_other_path(stage: Stage) -> None:
    stage.write(kernel_text(2000.0))
    (stage.root / "other.txt").write_text("changed\n")
    (stage.root / "new file.txt").write_text("untracked\n")
    (stage.root / "staged é.txt").write_text("staged\n")
    stage.git("add", "staged é.txt")
    stage.git("rm", "-q", "--cached", ".gitignore")
    said = refused(stage, Status.DIRTY, " M other.txt, ", "A  staged é.txt", "D  .gitignore")
    assert "new file.txt" not in said, "no verdict can follow from it"


def test_what_git_does_not_track_is_in_nobodys_way(stage: Stage) -> None:
    """The output of the run itself, notes, and a tree full of kernels that were not judged yet."""
    (stage.root / "folder").mkdir()
    for name in ("log", "folder/deep.txt", *(f"new kernel {number}.py" for number in range(150))):
        (stage.root / name).write_text("untracked\n")
    stage.run("baseline")
    stage.write(kernel_text(2000.0))
    assert stage.run("better").decision == "kept"
    assert stage.git("ls-tree", "--name-only", "HEAD").split("\n") == [
        ".gitignore", "kernel.py", "other.txt", "results.tsv"
    ]  # fmt: skip
    assert (stage.root / "folder" / "deep.txt").read_text() == "untracked\n"


@pytest.mark.parametrize("name", ["pyproject.toml", ".gitattributes", "folder/.gitattributes"])
def test_what_steers_git_or_the_judge_is_refused_though_untracked(stage: Stage, name: str) -> None:
    stage.write(kernel_text(2000.0))
    (stage.root / name).parent.mkdir(exist_ok=True)
    (stage.root / name).write_text("\n")
    refused(stage, Status.DIRTY, f"?? {name}; commit them")


def test_a_long_list_is_cut(stage: Stage) -> None:
    for number in range(300):
        (stage.root / f"mine {number:03d}.txt").touch()
    stage.git("add", ".")
    with pytest.raises(Refusal) as refusal:
        stage.run()
    assert "A  mine 004.txt and 295 more; commit" in refusal.value.message
    assert "mine 005" not in refusal.value.message


def test_a_renamed_file_is_dirty(stage: Stage) -> None:
    stage.git("mv", "other.txt", "renamed.txt")
    refused(stage, Status.DIRTY, "D  other.txt", "A  renamed.txt")


def test_an_edited_judge(stage: Stage) -> None:
    (stage.root / "other.txt").write_text("a lenient judge\n")
    stage.sealed = ("other.txt",)
    refused(stage, Status.SEAL_BROKEN, "other.txt")


@pytest.mark.parametrize(
    "hide",
    [
        lambda stage: stage.git("update-index", "--assume-unchanged", "other.txt"),
        lambda stage: stage.git("update-index", "--skip-worktree", "other.txt"),
        lambda stage: (stage.root / ".git" / "info" / "attributes").write_text("other.txt filter=hides\n"),
    ],
    ids=["assumed unchanged", "skipped", "filtered"],
)
def test_a_change_of_the_judge_that_git_overlooks_is_seen(stage, hide):
    stage.git("config", "filter.hides.clean", "git show HEAD:other.txt")
    hide(stage)
    (stage.root / "other.txt").write_text("another rule\n")
    stage.sealed = ("other.txt",)
    refused(stage, Status.SEAL_BROKEN, "other.txt")


def test_a_new_file_of_the_judge_that_git_ignores_is_seen(stage):
    (stage.root / ".git" / "info" / "exclude").write_text("new.txt\n")
    (stage.root / "new.txt").write_text("another rule\n")
    stage.sealed = ("new.txt",)
    refused(stage, Status.SEAL_BROKEN, "new.txt")


def test_line_ends_of_the_judge_do_not_count(stage):
    stage.sealed = ("other.txt",)
    stage.git("config", "core.autocrlf", "true")
    (stage.root / "other.txt").unlink()
    stage.git("checkout", "--", "other.txt")
    assert b"\r\n" in (stage.root / "other.txt").read_bytes()
    assert stage.run().status is Status.PASS


def test_a_file_of_the_judge_is_no_kernel(stage: Stage) -> None:
    (stage.root / "other.txt").write_text("a lenient judge\n")
    stage.sealed = ("other.txt",)
    refused(stage, Status.USAGE, "other.txt is a file of the judge", kernel=Path("other.txt"))


def test_a_judge_that_changes_while_it_judges(stage: Stage) -> None:
    stage.run("baseline")
    stage.write(kernel_text(2000.0))
    head = stage.head()
    stage.during = lambda: setattr(stage, "seal", "changed")
    with pytest.raises(Refusal) as refusal:
        stage.run("better")
    assert refusal.value.status is Status.SEAL_BROKEN
    assert len(stage.rows()) == 1
    assert (stage.head(), stage.read()) == (head, kernel_text(2000.0))


@pytest.mark.parametrize("message", ["", " \n\t", "a NUL \0 inside"])
def test_messages_that_cannot_be(stage: Stage, message: str) -> None:
    refused(stage, Status.USAGE, "the message", message=message)


def test_no_kernel_file(stage: Stage) -> None:
    (stage.root / "kernel.py").unlink()
    refused(stage, Status.NOT_FOUND, "kernel.py", "git checkout")


def test_a_kernel_file_that_git_does_not_have_either(stage: Stage) -> None:
    refused(stage, Status.NOT_FOUND, "there is no file no where.py: name another", kernel=Path("no where.py"))


@pytest.mark.parametrize("make", NO_FILES.values(), ids=NO_FILES)
def test_a_kernel_that_is_no_file(stage: Stage, make: Callable[[Path], None]) -> None:
    (stage.root / "kernel.py").unlink()
    make(stage.root / "kernel.py")
    refused(stage, Status.USAGE, "regular file")


@pytest.mark.parametrize("kernel", ["../outside.py", "/etc/hostname", ".git/config", ".", "results.tsv"])
def test_a_kernel_elsewhere(stage: Stage, kernel: str) -> None:
    refused(stage, Status.USAGE, "not a kernel file inside", kernel=Path(kernel))
