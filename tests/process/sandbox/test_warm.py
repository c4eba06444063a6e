"""A process of which children are forked: what they get of it, and what becomes of them when it ends."""

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ratchet.exam.candidate import tracer
from ratchet.exam.judge import asking, schedule
from ratchet.exam.judge.workers import Workers
from ratchet.process.sandbox.child import OPEN, Child, Limits
from ratchet.process.sandbox.warm import AUTHOR, JUDGE, Warm
from ratchet.tpu.chips import V5E
from ratchet.tpu.compiler import compile as compiling
from tests.imports import HERE

MODULE = "tests.process.sandbox.quick"
LIMITS = Limits(seconds=60, memory_bytes=4 << 30)


@pytest.fixture(scope="module")
def warm():
    one = Warm(["ratchet.exam.judge.schedule_worker"])
    yield one
    one.close()


def parent(process):
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def answer(child, question, argument):
    ending = child.ask(Path(f"{question} {argument}"), LIMITS)
    assert ending.how == "answered", ending.tail
    return ending.answer


def test_a_fork_has_the_variables_of_a_new_process_and_no_others(tmp_path, warm):
    """Neither those of another child of the same process."""
    variables = []
    for name, of in (("first", warm), ("second", warm), ("new", None)):
        own = {"SECRET": name} if name == "first" else {"ONLY": "here"}
        with Child(MODULE, directory=tmp_path / name, environment=own, walls=OPEN, warm=of) as child:
            said = answer(child, "variables", "")
        variables.append(said.replace(str(tmp_path / name), "FOLDER"))
    first, second, new = variables
    assert "SECRET" in first
    assert "SECRET" not in second
    assert second == new


def test_nothing_of_forks_is_left_when_they_end(tmp_path, warm):
    with Child(MODULE, directory=tmp_path / "first", walls=OPEN, warm=warm) as first:
        answer(first, "variables", "")
    before = len(os.listdir("/proc/self/fd"))
    with Child(MODULE, directory=tmp_path / "second", walls=OPEN, warm=warm) as child:
        answer(child, "variables", "")
        process = child._process.pid
        assert parent(process) == warm._process.pid
    assert child._process.returncode is not None
    assert not Path(f"/proc/{process}").exists()
    assert len(os.listdir("/proc/self/fd")) == before


def test_several_threads_may_ask_for_the_end_while_one_waits_for_it(tmp_path, warm):
    with Child(MODULE, directory=tmp_path / "child", walls=OPEN, warm=warm) as child:
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
    warm = Warm(["ratchet.exam.judge.values_worker"])
    try:
        child = Child(MODULE, directory=tmp_path / "child", walls=OPEN, warm=warm)
        warm.cancel()
        with pytest.raises(ProcessLookupError, match="never forked"):
            _ = child._process.pid
        assert child.ask(tmp_path, LIMITS).how == "died"
        child.close()
    finally:
        warm.close()
        warm.close()


def test_a_child_lives_where_the_warm_process_has_ended(tmp_path):
    warm = Warm([])
    warm.close()
    with Child(MODULE, directory=tmp_path / "child", walls=OPEN, warm=warm) as child:
        assert answer(child, "variables", "")


def test_who_waits_for_a_fork_waits_no_longer_than_asked(tmp_path, warm):
    with Child(MODULE, directory=tmp_path / "child", walls=OPEN, warm=warm) as child:
        answer(child, "variables", "")
        with pytest.raises(subprocess.TimeoutExpired):
            child._process.wait(timeout=0.05)
        assert child._process.poll() is None


def test_the_child_that_runs_an_authors_code_is_no_fork_of_the_judges_own_process():
    """Those of one process know each other's addresses."""
    with Workers(V5E, compiles=False) as workers, workers.candidate() as candidate:
        assert isinstance(candidate._process, subprocess.Popen)
        assert not isinstance(workers.values._process, subprocess.Popen)


def test_many_kernel_files_run_in_forks_of_a_process_of_their_own():
    with Workers(V5E, compiles=False, keep=True) as workers:
        with workers.candidate() as first, workers.candidate() as second:
            assert first._process.pid != second._process.pid
            authors = {parent(child._process.pid) for child in (first, second)}
            own = parent(workers.values._process.pid)
        assert len(authors) == 1
        assert own not in authors
    assert not [one for one in (*authors, own) if Path(f"/proc/{one}").exists()]


def test_what_a_verdict_forks_its_children_of_is_begun_once_and_ends_with_its_owner(tmp_path):
    assert (asking.WORKER, compiling.WORKER, schedule.WORKER) == JUDGE
    assert (tracer.WORKER,) == AUTHOR
    script = f"""
import json, os
from ratchet.process.boot import bytecode, children
from ratchet.process.sandbox import warm
from ratchet.tpu.chips import V5E
from ratchet.exam.judge.workers import Workers
bytecode.fill(children.packages())
warm.begin()
begun = [one._process.pid for one in warm._BEGUN.values()]
with Workers(V5E, compiles=False) as workers:
    used = [workers._warm._process.pid, workers._authors._process.pid]
left = [str(one) for one in begun if os.path.exists(f"/proc/{{one}}")]
warm.begin()  # nobody asks for these
unused = [one._process.pid for one in warm._BEGUN.values()]
json.dump([begun, used, left, unused], open({str(tmp_path / "said")!r}, "w"))
"""
    subprocess.run([sys.executable, "-c", script], cwd=HERE, check=True, timeout=120)
    begun, used, left, unused = json.loads((tmp_path / "said").read_text())
    assert begun == used
    assert not left
    assert len(unused) == 2
    assert not [one for one in unused if Path(f"/proc/{one}").exists()]
