"""The cache of references: only what this machine's key signed is used, and it does not grow without end."""

import os
import shutil
from pathlib import Path

import pytest

from ratchet.exam.problem import reference_store
from ratchet.process import key, made
from ratchet.process.root import Root
from ratchet.values.status import Status
from tests.imports import MODULES, closure
from tests.refusals import refused


@pytest.fixture(autouse=True)
def _own_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key, "path", lambda: tmp_path / "home" / "key")
    (tmp_path / ".git").mkdir()


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """A problem's folder in the cache, with one reference in it."""
    child = tmp_path / "first" / "problem-a"
    child.mkdir(parents=True)
    (child / "random.npy").write_bytes(b"the reference")
    folder = tmp_path / "references" / "problem-a"
    reference_store.collect(child, folder)
    assert sorted(os.listdir(folder)) == ["random.mac", "random.npy"]
    return folder


def lent(kept: Path, tmp_path: Path, child: str = "child") -> dict[str, bytes]:
    folder = reference_store.lend(kept, tmp_path / child)
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_what_was_made_here_is_lent(kept: Path, tmp_path: Path) -> None:
    assert lent(kept, tmp_path) == {"random.npy": b"the reference"}


def edit(kept: Path) -> None:
    (kept / "random.npy").write_bytes(b"THE REFERENCE")


def remove_the_mac(kept: Path) -> None:
    (kept / "random.mac").unlink()


def rename(kept: Path) -> None:
    for suffix in (".npy", ".mac"):
        (kept / f"random{suffix}").rename(kept / f"mixed{suffix}")


def sign_elsewhere(kept: Path) -> None:
    content = key.Key(secret=bytes(32)).mac("reference", b"problem-a", b"random.npy", b"")
    (kept / "random.mac").write_text(content)


def link(kept: Path) -> None:
    (kept / "random.npy").rename(kept / "elsewhere")
    (kept / "random.npy").symlink_to("elsewhere")


def pipe(kept: Path) -> None:
    for suffix in (".npy", ".mac"):
        (kept / f"random{suffix}").unlink()
        os.mkfifo(kept / f"random{suffix}")


@pytest.mark.parametrize("change", [edit, remove_the_mac, rename, sign_elsewhere, link, pipe])
def test_what_was_changed_is_never_used_and_made_again(kept: Path, tmp_path: Path, change) -> None:
    change(kept)
    assert lent(kept, tmp_path) == {}
    child = tmp_path / "child" / kept.name
    (child / "random.npy").write_bytes(b"computed again")
    reference_store.collect(child, kept)
    assert lent(kept, tmp_path, "another") == {"random.npy": b"computed again"}


def test_references_of_another_problem_are_not_this_ones(kept: Path, tmp_path: Path) -> None:
    other = kept.with_name("problem-b")
    shutil.copytree(kept, other)
    assert lent(other, tmp_path) == {}


def test_another_key_uses_none_of_them(kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key, "path", lambda: tmp_path / "other home" / "key")
    assert lent(kept, tmp_path) == {}


def test_without_a_key_nothing_is_cached(kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> Path:
        raise key.NoKey("no home folder")

    monkeypatch.setattr(key, "path", nowhere)
    assert lent(kept, tmp_path) == {}
    (tmp_path / "child" / kept.name / "mixed.npy").write_bytes(b"computed")
    reference_store.collect(tmp_path / "child" / kept.name, kept)
    assert sorted(os.listdir(kept)) == ["random.mac", "random.npy"]


def test_a_child_cannot_replace_what_is_cached(kept: Path, tmp_path: Path) -> None:
    lent(kept, tmp_path)
    (tmp_path / "child" / kept.name / "random.npy").write_bytes(b"poison")
    reference_store.collect(tmp_path / "child" / kept.name, kept)
    assert lent(kept, tmp_path, "another") == {"random.npy": b"the reference"}


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """Three problems of 1000 bytes, b used last."""
    for place, name in enumerate(["a", "c", "b"]):
        (tmp_path / "cache" / name).mkdir(parents=True)
        (tmp_path / "cache" / name / "random.npy").write_bytes(bytes(1000))
        os.utime(tmp_path / "cache" / name, (place, place))
        made.mark(Root(tmp_path), f"cache/{name}")
    return tmp_path / "cache"


@pytest.mark.parametrize(
    ("max_bytes", "keep", "gone"),
    [(3000, "a", ()), (2999, "b", ("a",)), (1999, "b", ("a", "c")), (1999, "a", ("c", "b")), (0, "c", ("a", "b"))],
)
def test_the_problem_that_was_not_used_for_longest_goes_first(cache: Path, max_bytes: int, keep: str, gone) -> None:
    assert reference_store.prune(cache, keep=keep, max_bytes=max_bytes) == gone
    assert sorted(os.listdir(cache)) == sorted({"a", "b", "c"} - {*gone})


def test_what_a_killed_process_left_goes_and_what_is_being_written_stays(cache: Path) -> None:
    for name in (".new-0123456789abcdef", ".new-fedcba9876543210"):
        (cache / "a" / name).touch()
    os.utime(cache / "a" / ".new-0123456789abcdef", (0, 0))
    reference_store.prune(cache, keep="a", max_bytes=1 << 20)
    assert sorted(os.listdir(cache / "a")) == [".new-fedcba9876543210", "random.npy"]


def test_what_was_not_made_here_is_not_removed(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of the user's, in the place of one of ours."""
    (cache / "mine").mkdir()
    (cache / "mine" / "random.npy").write_bytes(bytes(1000))
    os.utime(cache / "mine", (0, 0))
    assert reference_store.prune(cache, keep="b", max_bytes=0) == ("a", "c")
    assert (cache / "mine" / "random.npy").stat().st_size == 1000


def test_a_link_in_the_place_of_a_problem_is_neither_written_nor_swept(kept: Path, tmp_path: Path) -> None:
    """Files of a user's, older than a day, with names that begin with a dot among them."""
    home = tmp_path / "user"
    home.mkdir()
    for name in (".bashrc", "notes.npy", ".new-0123456789abcdef"):
        (home / name).write_text("mine")
        os.utime(home / name, (0, 0))
    shutil.rmtree(kept)
    kept.symlink_to(home)
    child = tmp_path / "first" / "problem-a"
    with refused(Status.INFRASTRUCTURE, "symbolic link"):
        reference_store.collect(child, kept)
    reference_store.prune(kept.parent, keep=kept.name, max_bytes=0)
    assert lent(kept, tmp_path) == {}
    assert {file.name: file.read_text() for file in home.iterdir()} == dict.fromkeys(
        (".bashrc", "notes.npy", ".new-0123456789abcdef"), "mine"
    )


def test_lending_counts_as_use(kept: Path, tmp_path: Path) -> None:
    os.utime(kept, (0, 0))
    lent(kept, tmp_path)
    assert kept.stat().st_mtime > 1e9


def test_the_budget_is_the_users(kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert reference_store.budget_bytes() == 2 << 30
    monkeypatch.setenv(reference_store.BUDGET, "0.5")
    assert reference_store.budget_bytes() == 1 << 29
    monkeypatch.setenv(reference_store.BUDGET, "0")
    child = tmp_path / "second" / "problem-b"
    child.mkdir(parents=True)
    (child / "random.npy").write_bytes(b"another")
    reference_store.collect(child, kept.with_name("problem-b"))
    assert os.listdir(kept.parent) == ["problem-b"]
    for wrong in ("much", "inf", "nan"):
        monkeypatch.setenv(reference_store.BUDGET, wrong)
        with refused(Status.USAGE, "wanted a number of GiB"):
            reference_store.budget_bytes()


def test_what_makes_a_reference_is_known_by_its_code() -> None:
    """Or a reference that the code of before made would be used by the code of after."""
    makers = closure("ratchet.exam.problem.reference", without="")
    assert {name for name in makers if name.startswith("ratchet.exam.")} <= {
        name for name in MODULES if name.startswith("ratchet.exam.problem.")
    }
