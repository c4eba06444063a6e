"""A process of which children are forked: what they get of it, and what becomes of them when it ends."""

import os
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ratchet.exam.judge.workers import AUTHOR, JUDGE, Workers
from ratchet.process import fast
from ratchet.process.boot import children
from ratchet.process.sandbox import warm as warms
from ratchet.process.sandbox.child import OPEN, Child
from ratchet.process.sandbox.warm import Kind, Warm
from ratchet.tpu.chips import V5E
from tests.process.sandbox.children import QUICK, answer, asked, parent


@pytest.fixture(scope="module")
def warm():
    one = Warm(Kind(name="test", modules=("ratchet.exam.judge.schedule_worker",)))
    yield one
    one.close()


def test_a_fork_has_the_variables_of_a_new_process_and_no_others(tmp_path, warm):
    """Neither those of another child of the same process."""
    variables = []
    for name, of in (("first", warm), ("second", warm), ("new", None)):
        own = {"SECRET": name} if name == "first" else {"ONLY": "here"}
        with Child(QUICK, directory=tmp_path / name, environment=own, walls=OPEN, warm=of) as child:
            variables.append(answer(child, "variables").replace(str(tmp_path / name), "FOLDER"))
    first, second, new = variables
    assert "SECRET" in first
    assert "SECRET" not in second
    assert second == new


def test_nothing_of_forks_is_left_when_they_end(tmp_path, warm):
    with Child(QUICK, directory=tmp_path / "first", walls=OPEN, warm=warm) as first:
        answer(first, "variables")
    before = len(os.listdir("/proc/self/fd"))
    with Child(QUICK, directory=tmp_path / "second", walls=OPEN, warm=warm) as child:
        answer(child, "variables")
        process = child._process.pid
        assert parent(process) == warm._process.pid
        with pytest.raises(subprocess.TimeoutExpired):
            child._process.wait(timeout=0.05)
        assert child._process.poll() is None
    assert child._process.returncode is not None
    assert not Path(f"/proc/{process}").exists()
    assert len(os.listdir("/proc/self/fd")) == before


def test_several_threads_may_ask_for_the_end_while_one_waits_for_it(tmp_path, warm):
    with Child(QUICK, directory=tmp_path / "child", walls=OPEN, warm=warm) as child:
        process = child._process
        os.kill(process.pid, signal.SIGKILL)
        with ThreadPoolExecutor(4) as pool:
            waits = pool.submit(process.wait, 30)
            asks = [pool.submit(asked_to_the_end, process) for _ in range(3)]
        assert {waits.result(), *(one.result() for one in asks)} == {-signal.SIGKILL}


def asked_to_the_end(process):
    while (code := process.poll()) is None:
        pass
    return code


def test_a_warm_process_that_is_cancelled_while_it_imports_forks_nobody(tmp_path):
    warm = Warm(Kind(name="test", modules=("ratchet.exam.judge.values_worker",)))
    try:
        child = Child(QUICK, directory=tmp_path / "child", walls=OPEN, warm=warm)
        warm.cancel()
        with pytest.raises(ProcessLookupError, match="never forked"):
            _ = child._process.pid
        assert asked(child, "processes").how == "died"
        child.close()
    finally:
        warm.close()
        warm.close()
    with Child(QUICK, directory=tmp_path / "new", walls=OPEN, warm=warm) as child:
        assert answer(child, "variables"), "it is a new process"


def test_what_runs_an_authors_code_is_no_fork_of_the_judges_own_process():
    """Those of one process know each other's addresses. Where many kernel files are judged there is a second one."""
    with Workers(V5E, compiles=False) as workers, workers.candidate() as candidate:
        assert isinstance(candidate._process, subprocess.Popen)
        assert not isinstance(workers.values._process, subprocess.Popen)
    with Workers(V5E, compiles=False, keep=True) as workers:
        with workers.candidate() as first, workers.candidate() as second:
            assert first._process.pid != second._process.pid
            authors = {parent(child._process.pid) for child in (first, second)}
            own = parent(workers.values._process.pid)
        assert len(authors) == 1
        assert own not in authors
    assert not [one for one in (*authors, own) if Path(f"/proc/{one}").exists()]


def packages_at(folder):
    library = folder / warms.JEMALLOC
    library.parent.mkdir(parents=True)
    library.touch()
    return str(folder), str(library)


@pytest.mark.parametrize("name", ["empty", "a folder", "a:folder"])
def test_the_first_jemalloc_counts_whose_path_the_loader_would_not_split(tmp_path, name, monkeypatch):
    first, library = packages_at(tmp_path / "first")
    second, _ = packages_at(tmp_path / "second")
    other = tmp_path / name
    if name == "empty":
        other.mkdir()
    else:
        packages_at(other)
    assert warms.preload([str(other), first, second]) == {"LD_PRELOAD": library}
    assert warms.preload([str(other), str(tmp_path / "none")]) == {}
    monkeypatch.setattr(fast, "ON", fast.PLAIN)
    assert warms.preload([first]) == {}


@pytest.mark.skipif(not warms.preload(children.packages()), reason="jemalloc is not in this environment")
def test_the_judges_own_children_have_jemalloc_and_those_of_an_author_have_not(tmp_path):
    libraries = {}
    for kind in (JUDGE, AUTHOR):
        warm = warms.process(kind, "")
        try:
            with Child(QUICK, directory=tmp_path / kind.name, walls=OPEN, warm=warm) as child:
                assert "LD_PRELOAD" not in answer(child, "variables")
                libraries[kind] = Path(f"/proc/{child._process.pid}/maps").read_text()
        finally:
            warm.close()
    assert warms.JEMALLOC in libraries[JUDGE]
    assert warms.JEMALLOC not in libraries[AUTHOR]
