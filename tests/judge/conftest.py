"""One compiler and one values child for all tests of a process: their start is most of what a small verdict costs."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ratchet.child import Limits
from ratchet.chips import V5E
from ratchet.compiler import compile as compiling
from ratchet.judge.workers import Workers
from ratchet.values import Artefact, Program
from ratchet.values.status import Refusal


@pytest.fixture(scope="session")
def workers() -> Iterator[Workers]:
    with Workers(V5E, keep=True, compiles=False) as kept:  # the compiler starts once it is asked for
        yield kept


@pytest.fixture
def compiled(workers: Workers) -> Callable[[Artefact], Program]:
    def compile_it(artefact: Artefact) -> Program:
        return compiling.compile_artefact(artefact, V5E, workers.folder("test"), workers.compiler)

    return compile_it


@pytest.fixture
def not_compiled(workers: Workers) -> Callable[..., Refusal]:
    """Compiles what has to be refused and returns the refusal."""

    def compile_it(artefact: Artefact, **limits: Any) -> Refusal:
        wanted = Limits(**{"seconds": 120, "memory_bytes": 8 << 30, **limits})
        with pytest.raises(Refusal) as caught:
            compiling.compile_artefact(artefact, V5E, workers.folder("test"), workers.compiler, wanted)
        assert "\n" not in caught.value.message
        return caught.value

    return compile_it
