"""Damaged files against every reader of the judge.

Readers of the judge's own process are Python, and are called here: each has a deadline and a limit of memory. What is
read by native code, MLIR and the artefact around it, and the schedule machine are asked in their jailed children; that
a child ends is an answer, too, and the judge's process goes on. A step is one damaged file read.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import shutil
import signal
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

import numpy as np

from benchmarks.fuzz import native_worker
from benchmarks.fuzz.damage import damaged, damaged_json, flipped
from benchmarks.fuzz.rounds import Round
from benchmarks.fuzz.samples import Samples, made
from ratchet.exam.candidate import tracer
from ratchet.exam.judge import schedule
from ratchet.exam.judge.responses import answer_in, read_arrays
from ratchet.exam.judge.workers import Workers
from ratchet.exam.problem import problem
from ratchet.loop import journal, ledger, log, state
from ratchet.loop.history import History
from ratchet.process import key
from ratchet.process.sandbox.child import Child, Limits
from ratchet.process.sandbox.folder import Folder
from ratchet.tpu.chips import V5E
from ratchet.tpu.compiler import compile as compiling
from ratchet.tpu.compiler.errors import classify
from ratchet.tpu.computed_operands import computed_operands
from ratchet.tpu.dump import copies, image
from ratchet.tpu.dump.files import LOWERED, OPTIMIZED, Dumps, load_hlo
from ratchet.tpu.mlir import kernel_config
from ratchet.values import Mesh
from ratchet.values.status import Refusal, Status

DEADLINE_SECONDS = 20
MEMORY_BYTES = 1 << 30
"""What reading the files of one round may take at once."""
PER_ROUND = 40
"""Files of one round and reader."""
LIMITS = Limits(seconds=120, memory_bytes=8 << 30)
NATIVE = 12
"""Artefacts of one round: each is read in a child."""
MACHINE = 4

FINE = ("read", "refused", "ended the child")
"""Answers that are no difference."""

Damage = Callable[[bytes, np.random.Generator], bytes]


class TooLong(BaseException):
    """A reader did not end in time. No reader catches it."""


@dataclass(frozen=True)
class Reader:
    """One reader of the judge's: a sound file and what reads it."""

    name: str
    sample: bytes
    read: Callable[[bytes], object]
    damage: Damage = damaged
    refusals: tuple[type[Exception], ...] = (Refusal,)
    """What it raises on purpose."""


def outcome(reader: Reader, data: bytes) -> str:
    """``read`` or ``refused``, or else what must not happen, in words."""
    signal.signal(signal.SIGALRM, _late)
    signal.alarm(DEADLINE_SECONDS)
    try:
        reader.read(data)
        answer = "read"
    except reader.refusals:
        answer = "refused"
    except TooLong:
        answer = f"no end in {DEADLINE_SECONDS} s"
    except Exception as error:
        answer = f"{type(error).__name__}: {error!s:.300}"
    finally:
        signal.alarm(0)
    return answer


def _late(_: int, __: FrameType | None) -> None:
    raise TooLong


def _peak(*, reset: bool = False) -> int:
    """The largest resident memory of this process, in bytes, since it was reset."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmHWM"))


def checked(reader: Reader, seed: int, *, count: int = PER_ROUND) -> Round:
    """One reader on ``count`` damaged copies of its sample, after the sound one."""
    generator = np.random.default_rng(seed)
    before = _peak(reset=True)
    sound = outcome(reader, reader.sample)
    answers = [] if sound == "read" else [f"the sound file: {sound}"]
    for _ in range(count):
        data = reader.damage(reader.sample, generator)
        answer = outcome(reader, data)
        answers.append(answer if answer in FINE else f"{answer} for {_shown(reader.sample, data)}")
    grown = _peak() - before
    if grown > MEMORY_BYTES:
        answers.append(f"took {grown >> 20} MiB")
    return _round(reader.name, seed, count, answers)


def _shown(sample: bytes, data: bytes) -> str:
    """Where a damaged file first differs."""
    at = next((i for i, (a, b) in enumerate(zip(sample, data, strict=False)) if a != b), min(len(sample), len(data)))
    return f"{len(data)} bytes, at {at}: {data[max(0, at - 20) : at + 60]!r}"


def _round(name: str, seed: int, steps: int, answers: Sequence[str]) -> Round:
    counts = Counter(answer for answer in answers if answer in FINE)
    wrong = tuple(answer for answer in answers if answer not in FINE)
    return Round(area=f"parser: {name}", seed=seed, steps=steps, outcomes=dict(counts), differences=wrong)


# --- readers of the judge's process ---


class _Folder:
    """A folder of sound files, of which one is damaged for each reading."""

    def __init__(self, files: Mapping[str, bytes], root: Path) -> None:
        self.root = root
        for name, data in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(data)

    def reading(self, name: str, read: Callable[[Path], object]) -> Callable[[bytes], object]:
        """Reads the folder with other bytes in the file ``name``."""
        sound = (self.root / name).read_bytes()

        def run(data: bytes) -> object:
            (self.root / name).write_bytes(data)
            try:
                return read(self.root)
            finally:
                (self.root / name).write_bytes(sound)

        return run


def readers(samples: Samples, root: Path) -> list[Reader]:
    """Everything that the judge's process reads of others: what children leave, and what is kept on the disk."""
    return [*_compiled(samples, root), *_texts(samples), *_records(samples, root), *_kept(samples, root)]


def _compiled(samples: Samples, root: Path) -> list[Reader]:
    """What the compiler's child leaves."""
    left = _Folder(samples.compiled, root / "compiled")
    known = load_hlo(left.root)

    def of_folder(name: str, file: str, read: Callable[[Path], object], damage: Damage = damaged) -> Reader:
        return Reader(name, samples.compiled[file], left.reading(file, read), damage)

    def program(folder: Path) -> object:
        return compiling.program_in(folder, V5E, seconds=1.0)

    def hlo(folder: Path) -> object:
        module = load_hlo(folder)
        return [module.fingerprint(name) for name in module.ops], computed_operands(module), module.parameters()

    def listings(folder: Path) -> object:
        dumps = Dumps(folder / "schedule", known, "a compiler")
        return [dumps.load(name) for name in dumps.names]

    return [
        of_folder("record of the compiler", compiling.RECORD, program, damaged_json),
        of_folder("HLO proto", OPTIMIZED, program),
        of_folder("HLO proto, read on", OPTIMIZED, hlo, flipped),
        of_folder("HLO proto before the passes", LOWERED, lambda f: copies.find(load_hlo(f), load_hlo(f, LOWERED))),
        of_folder("table of tokens", "schedule/tokens.json", program, damaged_json),
        of_folder("VMEM report", samples.named("vmem_report.html"), program),
        of_folder("count of spills", samples.named("utilization.txt"), program),
        of_folder("listing", samples.top("packed-bundles-post-ra.txt"), listings),
        of_folder("outline", samples.top("post-bundle-packing-post-ra.txt"), listings),
    ]


def _texts(samples: Samples) -> list[Reader]:
    def text(read: Callable[[str], object]) -> Callable[[bytes], object]:
        return lambda data: read(data.decode(errors="replace"))

    def constants(data: bytes) -> object:
        return image.constant_segment(data, compiler="a compiler")

    return [
        Reader("compiler's error", samples.error, text(classify)),
        Reader("kernel configuration", samples.configuration, text(kernel_config.read), damaged_json),
        Reader("executable's image", samples.executable, constants),
    ]


def _records(samples: Samples, root: Path) -> list[Reader]:
    """What the candidate's, the values' and the machine's children leave."""
    candidate = _Folder(samples.candidate, root / "candidate")
    values = root / "values"
    values.mkdir()

    def traced(path: Path) -> object:
        with contextlib.closing(Folder.at(path)) as folder:
            return tracer.read(folder, "kernel.py")

    def answer(data: bytes) -> object:
        (values / "answer.json").write_bytes(data)
        read = answer_in(values / "answer.json")
        return [read[key] for key in ("status", "message", "worst", "rms", "seconds", "control", "modules")]

    def arrays(data: bytes) -> object:
        (values / "arrays.npz").write_bytes(data)
        return read_arrays(values / "arrays.npz", 1 << 24)["input0"]

    record = samples.candidate[tracer.RECORD]
    return [
        Reader("record of the candidate", record, candidate.reading(tracer.RECORD, traced), damaged_json),
        Reader("answer of the values", samples.answer, answer, damaged_json),
        Reader("arrays of the values", samples.arrays, arrays),
        Reader("timeline of the machine", samples.timeline, schedule.timeline_in, damaged_json),
    ]


def _kept(samples: Samples, root: Path) -> list[Reader]:
    """What is kept in the repository."""
    space = root / "repository"
    samples.repository(space)
    history = History(space)
    pending = history.git.path / state.PENDING

    def signed(data: bytes) -> bytes:
        """As a run of this machine leaves it: what was not is never read."""
        own = key.known()
        mac = own.mac("state", state.PENDING.encode(), data) if own else ""
        return mac.encode() + b"\n" + data

    def in_place(
        file: Path, read: Callable[[], object], kept: Callable[[bytes], bytes] = bytes
    ) -> Callable[[bytes], object]:
        def run(data: bytes) -> object:
            file.write_bytes(kept(data))
            try:
                return read()
            finally:
                pending.unlink(missing_ok=True)
                (space / ledger.NAME).write_bytes(samples.ledger)

        return run

    def lock(data: bytes) -> object:
        return problem.decode(data, "a lock")

    def row(data: bytes) -> object:
        return ledger.parse_row(data.decode())

    return [
        Reader("problem lock", samples.lock, lock, damaged_json),
        Reader("problem lock, as bytes", samples.lock, lock),
        Reader("ledger", samples.ledger, in_place(space / ledger.NAME, lambda: log.rows(space))),
        Reader("row", samples.ledger.splitlines()[1], row, refusals=(ValueError,)),
        Reader("journal", samples.journal, in_place(pending, lambda: journal.recover(history), signed), damaged_json),
    ]


# --- readers in jailed children ---


class _Native:
    """Damaged artefacts, read in a jailed child that is replaced whenever it ends."""

    def __init__(self, samples: Samples, root: Path) -> None:
        self._samples, self._root, self._children = samples, root, 0
        self._child: Child | None = None

    def __call__(self, seed: int) -> Round:
        generator = np.random.default_rng(seed)
        answers = [self._asked(self._damaged(generator)) for _ in range(NATIVE)]
        return _round("artefact, in a child", seed, NATIVE, answers)

    def _damaged(self, generator: np.random.Generator) -> bytes:
        """The artefact with damage to itself, or to the body of its kernel."""
        artefact = self._samples.artefact
        if generator.integers(3) == 0:
            return damaged(artefact, generator)
        text = self._samples.body
        body = flipped(base64.b64decode(text), generator)
        return artefact.replace(text, base64.b64encode(body)) if generator.integers(4) else flipped(artefact, generator)

    def _asked(self, data: bytes) -> str:
        if self._child is None or not self._child.alive:
            self.close()
            self._children += 1
            self._child = Child(native_worker.__name__, directory=self._root / f"native{self._children}")
        folder = self._child.request()
        (folder / native_worker.PROGRAM).write_bytes(data)
        answered = self._child.ask(folder, LIMITS).how == "answered"
        return (folder / native_worker.ANSWER).read_text() if answered else "ended the child"

    def close(self) -> None:
        if self._child is not None:
            self._child.close()


def _machine(samples: Samples, workers: Workers) -> Callable[[int], Round]:
    """Damaged dumps, run by the machine in its own child: a value, a refusal, or a failure that it reports."""
    left = _Folder(samples.compiled, workers.folder("damaged"))
    names = [name for name in samples.compiled if name.endswith((".txt", ".pb", "tokens.json"))]
    program = replace(samples.program, dump_dir=left.root)

    def modelled(_: Path) -> object:
        return schedule.step(workers.machine, program, V5E, Mesh(), samples.steering)

    def run(seed: int) -> Round:
        generator = np.random.default_rng(seed)
        answers = []
        for _ in range(MACHINE):
            name = names[int(generator.integers(len(names)))]
            try:
                left.reading(name, modelled)(damaged(samples.compiled[name], generator))
                answers.append("read")
            except Refusal as refusal:
                broken = refusal.status is Status.INTERNAL
                answers.append(f"{name}: {refusal.message}" if broken else "refused")
            except RuntimeError as error:
                lines = str(error).splitlines()
                answers.append(f"{name}: {lines[0]} … {lines[-1]}")
        return _round("dumps, by the machine in its child", seed, MACHINE, answers)

    return run


@contextlib.contextmanager
def opened() -> Iterator[list[Callable[[int], Round]]]:
    """The rounds of all readers."""
    root = Path(tempfile.mkdtemp(prefix="fuzz-"))
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, root, ignore_errors=True)
        workers = stack.enter_context(Workers(V5E, keep=True, compiles=False))
        samples = made(workers)
        native = _Native(samples, root)
        stack.callback(native.close)
        inside = [functools.partial(checked, reader) for reader in readers(samples, root)]
        yield [*inside, native, _machine(samples, workers)]
