"""Evidence is pruned by the stated rule and nothing else is ever touched."""

import hashlib
import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.exam.judge.evidence import digest, keep, prune
from ratchet.process import key, made
from ratchet.process.root import Root
from ratchet.values.status import Status
from tests.refusals import refused

IDS = [f"e{number:02}" for number in range(25)]


@pytest.fixture(autouse=True)
def _own_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key, "path", lambda: tmp_path / "home" / "key")


def write(root: Path, name: str, n_bytes: int = 10) -> None:
    for folder in ("hlo_dumps", "profile_data"):
        target = root / folder / name / "deep" / "t.xplane.pb"
        target.parent.mkdir(parents=True)
        target.write_bytes(b"x" * n_bytes)
        made.mark(Root(root), f"{folder}/{name}")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in IDS:
        write(tmp_path, name)
    return tmp_path


def left(root: Path) -> list[str]:
    assert sorted(os.listdir(root / "hlo_dumps")) == sorted(os.listdir(root / "profile_data"))
    return sorted(os.listdir(root / "hlo_dumps"))


def test_texts_are_kept_whole_or_not_at_all(tmp_path: Path, small_disk: Path) -> None:
    texts = tmp_path / "texts"
    for number in range(3):
        (texts / f"{number}").mkdir(parents=True)
        (texts / f"{number}" / "text").write_bytes(b"x" * (30 << 10))
    keep(texts, tmp_path / "hlo_dumps" / "e1")
    kept = sorted(path.relative_to(tmp_path / "hlo_dumps" / "e1") for path in (tmp_path / "hlo_dumps").rglob("text"))
    assert [str(path) for path in kept] == ["0/text", "1/text", "2/text"]
    with refused(Status.NO_SPACE) as refusal:
        keep(texts, small_disk / "hlo_dumps" / "e1")
    assert refusal.value.message.startswith(
        "the evidence hlo_dumps/e1 cannot be written: No space left on device; free"
    )
    assert not (small_disk / "hlo_dumps" / "e1").exists()
    (tmp_path / "profile_data").write_text("a file where a folder is wanted")
    with refused(Status.LEDGER_UNWRITABLE):
        keep(texts, tmp_path / "profile_data" / "e1")


def test_the_newest_and_the_incumbent_stay(root: Path) -> None:
    assert prune(root, IDS, keep={"e01"}) == ("e00", "e02", "e03", "e04")
    assert left(root) == ["e01", *IDS[5:]]
    assert prune(root, IDS, keep={"e01"}) == ()


def test_age_is_the_ledgers_not_the_clocks(root: Path) -> None:
    os.utime(root / "hlo_dumps" / "e24", (0, 0))
    prune(root, IDS, newest=1)
    assert left(root) == ["e24"]


def test_too_many_bytes_cost_the_oldest_first(root: Path) -> None:
    assert prune(root, IDS, keep={"e05"}, max_bytes=20 * 4)[-1] == "e21"
    assert left(root) == ["e05", "e22", "e23", "e24"]


@pytest.mark.parametrize(("over", "left_over"), [(0, ["e00", "e01", "e02"]), (1, ["e01", "e02"])])
def test_a_gibibyte_is_kept(tmp_path: Path, over: int, left_over: list[str]) -> None:
    """Files that take no room: they are as large as they say, and empty."""
    for name in IDS[:3]:
        write(tmp_path, name, 0)
    os.truncate(tmp_path / "hlo_dumps" / "e00" / "deep" / "t.xplane.pb", 1 << 29)
    os.truncate(tmp_path / "profile_data" / "e01" / "deep" / "t.xplane.pb", (1 << 29) + over)
    prune(tmp_path, IDS[:3])
    assert left(tmp_path) == left_over


def test_an_experiment_that_is_listed_twice_is_as_new_as_its_last_row(root: Path) -> None:
    assert prune(root, [*IDS, "e00"], newest=2) == tuple(IDS[1:24])
    assert left(root) == ["e00", "e24"]


def test_what_cannot_be_removed_is_not_reported(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    removes = Root.remove

    def refuses(top: Root, folder: str) -> bool:
        return not folder.endswith("e01") and removes(top, folder)

    monkeypatch.setattr(Root, "remove", refuses)
    assert prune(root, IDS, newest=22) == ("e00", "e02")
    assert left(root) == ["e01", *IDS[3:]]


def test_what_no_experiment_is_named_after_is_left_alone(root: Path) -> None:
    (root / "hlo_dumps" / "my notes").mkdir()
    (root / "hlo_dumps" / ".gitkeep").touch()
    (root / "results.tsv").write_text("rows")
    (root / "e00").mkdir()
    prune(root, IDS, newest=0, max_bytes=0)
    assert sorted(os.listdir(root / "hlo_dumps")) == [".gitkeep", "e24", "my notes"]
    assert (root / "results.tsv").read_text() == "rows"
    assert (root / "e00").is_dir()


def test_what_was_not_made_here_is_not_removed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's own, or what came with a clone: a forged row that names it is no leave to remove it."""
    for folder in ("hlo_dumps", "profile_data"):
        (root / folder / "e00").rename(root / folder / "mine")
    assert prune(root, ["mine", *IDS], newest=2) == tuple(IDS[1:23])
    assert left(root) == ["e23", "e24", "mine"]
    monkeypatch.setattr(key, "path", lambda: root / "another" / "key")
    assert prune(root, IDS, newest=0) == ()


def test_an_edited_ledger_cannot_point_elsewhere(tmp_path: Path) -> None:
    root = tmp_path / "repo"
    write(root, "e1")
    (tmp_path / "treasure").mkdir()
    ids = ["../../treasure", "..", ".", "", "/", str(tmp_path / "treasure"), "a\0b", "e1", "e2"]
    assert prune(root, ids, newest=0, max_bytes=0) == ("e1",)
    assert (tmp_path / "treasure").is_dir()
    with pytest.raises(ValueError, match="not an experiment's id"):
        digest(root, "../../treasure")


def test_links_are_neither_followed_nor_removed(tmp_path: Path) -> None:
    root, outside = tmp_path / "repo", tmp_path / "outside"
    write(root, "e2")
    write(outside, "e1", 5000)
    (root / "hlo_dumps" / "e1").symlink_to(outside / "hlo_dumps" / "e1")
    (root / "hlo_dumps" / "e2" / "link").symlink_to(outside)
    plain = digest(root, "e2")
    assert prune(root, ["e1", "e2", "e3"], newest=0) == ("e2",)
    assert (root / "hlo_dumps" / "e1").is_symlink()
    assert (outside / "hlo_dumps" / "e1" / "deep" / "t.xplane.pb").stat().st_size == 5000
    write(root, "e2")
    assert digest(root, "e2") == plain
    linked = tmp_path / "linked"
    linked.mkdir()
    (linked / "hlo_dumps").symlink_to(root / "hlo_dumps")
    assert prune(linked, ["e2", "e3"], newest=0) == ()


def test_links_to_files_and_pipes_are_no_evidence(tmp_path: Path) -> None:
    write(tmp_path, "e1")
    plain = digest(tmp_path, "e1")
    (tmp_path / "secret").write_bytes(bytes(5000))
    folder = tmp_path / "hlo_dumps" / "e1"
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "gone").symlink_to(tmp_path / "none")
    os.mkfifo(folder / "pipe")
    assert digest(tmp_path, "e1") == plain
    keep(folder, tmp_path / "copy")
    assert [path.name for path in (tmp_path / "copy").rglob("*") if not path.is_dir()] == ["t.xplane.pb"]
    write(tmp_path, "e2")
    assert prune(tmp_path, ["e1", "e2"], max_bytes=40) == (), "what a link leads to is not counted"


def test_nothing_there_is_fine(tmp_path: Path) -> None:
    assert prune(tmp_path, IDS) == ()
    assert digest(tmp_path, "e1") == ""


def test_digest_is_of_names_and_contents_that_the_judge_wrote(root: Path) -> None:
    before = digest(root, "e01")
    assert before != digest(root, "e02"), "the same bytes under another name"
    (root / "profile_data" / "e01" / "deep" / "t.SSTABLE").write_text("XProf's cache")
    assert digest(root, "e01") == before
    (root / "hlo_dumps" / "e01" / "more").touch()
    after = digest(root, "e01")
    assert after != before
    listing = subprocess.run(
        ["sha256sum", "hlo_dumps/e01/deep/t.xplane.pb", "hlo_dumps/e01/more", "profile_data/e01/deep/t.xplane.pb"],
        cwd=root,
        capture_output=True,
        check=True,
    ).stdout
    assert after == hashlib.sha256(listing).hexdigest()


@given(
    sizes=st.lists(st.integers(0, 50), max_size=8),
    keep=st.sets(st.integers(0, 7)),
    newest=st.integers(0, 8),
    limit=st.integers(0, 300),
)
def test_the_rule_holds(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], keep: set[int], newest: int, limit: int
) -> None:
    root = tmp_path_factory.mktemp("root")
    ids = [f"e{place}" for place in range(len(sizes))]
    for name, n_bytes in zip(ids, sizes, strict=True):
        write(root, name, n_bytes)
    named = {f"e{place}" for place in keep}
    removed = prune(root, ids, keep=named, newest=newest, max_bytes=limit)
    stays = [name for name in ids if name not in removed]
    assert [name for name in ids if (root / "hlo_dumps" / name).exists()] == stays
    assert not set(removed) & {*named, *ids[-1:]}
    unnamed = [name for name in stays if name not in {*named, *ids[-1:]}]
    assert set(unnamed) <= set(ids[-newest:] if newest else [])
    total = sum(2 * sizes[ids.index(name)] for name in stays)
    assert total <= limit or not unnamed


def test_without_a_key_nothing_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Anybody can write the mark of such a run."""
    monkeypatch.setattr(key, "known", lambda: None)
    write(tmp_path, "e1")
    assert not made.remove(Root(tmp_path), "hlo_dumps/e1")
    assert left(tmp_path) == ["e1"]
