"""What is mutated, room by room, and which tests have to notice. A room of its own: faults that once went unnoticed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarks.mutants.mutator import Mutant


@dataclass(frozen=True, kw_only=True)
class Room:
    """Sources by pattern below the tree, and the tests that may notice."""

    sources: tuple[str, ...]
    tests: tuple[str, ...]
    """Files, folders or single tests."""
    children: bool = False
    """Whether the sources also run in children of the tests, where nobody sees which lines they run."""

    def files(self, tree: Path) -> list[str]:
        """The sources, relative to ``tree``."""
        return sorted({str(path.relative_to(tree)) for pattern in self.sources for path in tree.glob(pattern)})

    def test_files(self, tree: Path) -> list[str]:
        """The tests, without folders."""
        return [
            file
            for test in self.tests
            for file in (
                sorted(str(path.relative_to(tree)) for path in (tree / test).glob("test_*.py"))
                if (tree / test).is_dir()
                else [test]
            )
        ]


def _each(pattern: str, names: str) -> tuple[str, ...]:
    """The pattern with each of these words in it."""
    return tuple(pattern.format(name) for name in names.split())


DEVIATIONS, PARITY, FITTING = _each("ratchet/exam/problem/{}.py", "deviations parity fitting")
LEDGER, CHILD, SCALAR = "ratchet/loop/ledger.py", "ratchet/process/sandbox/child.py", "ratchet/tpu/scalar.py"
ROOMS = {
    "known": Room(
        sources=(DEVIATIONS, PARITY, LEDGER, CHILD, SCALAR),
        tests=(
            "tests/tpu/test_scalar.py",
            "tests/exam/problem/test_parity.py",
            "tests/loop/test_flush.py",
            "tests/process/sandbox/test_walls.py::test_a_child_that_takes_more_memory_than_it_may_is_ended",
        ),
        children=True,
    ),
    "scalar": Room(
        sources=(SCALAR, "ratchet/tpu/mosaic/scalars.py"),
        tests=("tests/tpu/test_scalar.py", "tests/tpu/machine/test_rules.py", "tests/tpu/mosaic/test_scalars.py"),
    ),
    "parsers": Room(
        sources=("ratchet/tpu/dump/*.py", "ratchet/tpu/mlir/kernel_config.py", "ratchet/values/encoding.py"),
        tests=(
            "tests/values",
            "tests/tpu/dump",
            "tests/tpu/mlir/test_kernel_config.py",
            *_each("tests/tpu/machine/test_{}.py", "rules golden"),
        ),
    ),
    "allowances": Room(
        sources=(DEVIATIONS, FITTING, PARITY, "ratchet/exam/problem/rounding/*.py"),
        tests=_each("tests/exam/problem/test_{}.py", "deviations fitting parity rounding losses"),
    ),
    "judge": Room(
        sources=(
            *_each("ratchet/exam/judge/{}.py", "audit evidence roofline seal steps"),
            "ratchet/exam/problem/instances.py",
        ),
        tests=(
            *_each("tests/exam/judge/test_{}.py", "steps roofline audit evidence seal"),
            "tests/exam/problem/test_instances.py",
        ),
    ),
    "hazards": Room(
        sources=_each("ratchet/tpu/mosaic/{}.py", "hazards memory arrays findings report grid"),
        tests=_each("tests/tpu/mosaic/test_{}.py", "hazards memory arrays grid report dynamic planted"),
    ),
    "jail": Room(
        sources=("ratchet/process/sandbox/*.py", "ratchet/process/boot/children.py"),
        tests=("tests/process/sandbox", "tests/exam/candidate/test_tracer.py"),
        children=True,
    ),
    "loop": Room(
        sources=_each("ratchet/loop/{}.py", "compare decide journal ledger log objects plumbing refs rows trial"),
        tests=(
            *_each(
                "tests/loop/test_{}.py", "flush decide compare rows log refs ledger refusals journal measured table"
            ),
            *_each("tests/loop/test_{}.py", "origin endings turn objects plumbing rebuild trial"),
            *_each(
                "tests/loop/test_interruption.py::test_{}",
                "a_commit_of_the_users_after_a_kill_is_not_lost another_branch_after_a_kill_is_asked_to_go_back "
                "a_branch_that_is_gone_after_a_kill a_locked_branch_is_finished_by_the_next_run",
            ),
        ),
    ),
}


@dataclass(frozen=True)
class Known:
    """A fault that no test noticed when the judge was examined."""

    name: str
    file: str
    before: str
    """Text that occurs once in the file."""
    after: str

    def mutant(self, source: str) -> Mutant:
        """The fault in today's source. Raises ValueError unless its text is there once."""
        if source.count(self.before) != 1:
            raise ValueError(f"{self.file} holds {self.before!r} {source.count(self.before)} times, wanted once")
        start = source.index(self.before)
        return Mutant(
            file=self.file,
            what=self.name,
            line=source.count("\n", 0, start) + 1,
            start=start,
            end=start + len(self.before),
            text=self.after,
        )


_FOLDER = '        Root(path.parent).flush(".")\n'
_FLUSH = "            os.fsync(descriptor)\n        except"
_LEFT, _RIGHT = (
    "wrap(a << amount) if 0 <= amount < WIDTH else 0",
    "wrap(unsigned(a) >> amount) if 0 <= amount < WIDTH else 0",
)
KNOWN = (
    Known("a row may be off 3 times as far", PARITY, "\nROW = 4.0\n", "\nROW = 12.0\n"),
    Known("an element may be off 4 times as far", DEVIATIONS, "\nELEMENT = 16.0\n", "\nELEMENT = 64.0\n"),
    Known("an array may be off 10 times as far", PARITY, "\nWHOLE = 2.0\n", "\nWHOLE = 20.0\n"),
    Known("a row is not flushed to the disk", LEDGER, _FLUSH, _FLUSH.replace("os.fsync(descriptor)", "pass")),
    Known(
        "the folder of the ledger is not flushed", LEDGER, '        Root(path.parent).flush(".")\n', "        pass\n"
    ),
    Known("no limit of memory", CHILD, "resident_bytes(self._process.pid) > limits.memory_bytes", "False"),
    Known("a left shift wraps at 64", SCALAR, _LEFT, "wrap(a << (amount & 63))"),
    Known("a logical shift wraps at 64", SCALAR, _RIGHT, "wrap(unsigned(a) >> (amount & 63))"),
)
