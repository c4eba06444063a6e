"""The allocator that the judge's own children have, where it is installed."""

from pathlib import Path

import pytest

from ratchet.process.boot import children
from ratchet.process.sandbox import allocator
from ratchet.process.sandbox.child import OPEN, Child, Limits
from ratchet.process.sandbox.warm import AUTHOR, JUDGE, Warm

LIMITS = Limits(seconds=60, memory_bytes=4 << 30)


def packages_at(folder):
    library = folder / allocator.LIBRARY
    library.parent.mkdir(parents=True)
    library.touch()
    return str(folder), str(library)


def test_the_first_folder_of_packages_that_has_it_counts(tmp_path):
    (tmp_path / "empty").mkdir()
    first, library = packages_at(tmp_path / "first")
    second, _ = packages_at(tmp_path / "second")
    assert allocator.preload([str(tmp_path / "empty"), first, second]) == {"LD_PRELOAD": library}
    assert allocator.preload([str(tmp_path / "empty"), str(tmp_path / "none")]) == {}


@pytest.mark.parametrize("name", ["a folder", "a:folder"])
def test_a_path_that_the_loader_would_split_is_left_out(tmp_path, name):
    split, _ = packages_at(tmp_path / name)
    whole, library = packages_at(tmp_path / "whole")
    assert allocator.preload([split]) == {}
    assert allocator.preload([split, whole]) == {"LD_PRELOAD": library}


@pytest.mark.skipif(not allocator.preload(children.packages()), reason="it is not in this environment")
def test_the_judges_own_children_have_it_and_those_of_an_author_have_not(tmp_path):
    libraries = {}
    for modules in (JUDGE, AUTHOR):
        warm = Warm(modules)
        try:
            with Child("tests.process.sandbox.quick", directory=tmp_path / modules[0], walls=OPEN, warm=warm) as child:
                ending = child.ask(Path("variables "), LIMITS)
                assert ending.how == "answered", ending.tail
                assert "LD_PRELOAD" not in ending.answer
                libraries[modules] = Path(f"/proc/{child._process.pid}/maps").read_text()
        finally:
            warm.close()
    assert allocator.LIBRARY in libraries[JUDGE]
    assert allocator.LIBRARY not in libraries[AUTHOR]
