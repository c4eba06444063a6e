"""Damaged files against every reader of the judge.

Readers of the judge's own process are Python, and are called here: each has a deadline and a limit of memory. What is
read by native code, MLIR and the artefact around it, and the schedule machine are asked in their jailed children; that
a child ends is an answer, too, and the judge's process goes on. A step is one damaged file read.
"""

from __future__ import annotations

import base64
import contextlib
import json
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

import numpy as np

from benchmarks.lib.fuzzing import native_worker
from benchmarks.lib.fuzzing.corpus import Corpus, made
from benchmarks.lib.fuzzing.damage import damaged, damaged_json, flipped
from benchmarks.lib.fuzzing.outcome import Difference, Round, counted
from ratchet.exam.candidate import tracer
from ratchet.exam.judge import schedule
from ratchet.exam.judge.responses import answer_in, read_arrays
from ratchet.exam.judge.workers import Workers
from ratchet.exam.problem import problem
from ratchet.loop import journal, ledger, log
from ratchet.loop.history import History
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
from ratchet.values.status import Refusal

DEADLINE_SECONDS = 20
MEMORY_BYTES = 1 << 30
"""What reading the files of one round may take at once."""
PER_ROUND = 40
"""Files of one round and reader."""
LIMITS = Limits(seconds=120, memory_bytes=8 << 30)
NATIVE = 12
"""Artefacts of one round: they are read in a child."""
MACHINE = 4

Damage = Callable[[bytes, np.random.Generator], bytes]


class TooLong(BaseException):
    """A reader did not end in time. No reader catches it."""


@dataclass(frozen=True, kw_only=True)
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
    wrong = [] if sound == "read" else [f"the sound file: {sound}"]
    outcomes = []
    for _ in range(count):
        data = reader.damage(reader.sample, generator)
        answer = outcome(reader, data)
        if answer in ("read", "refused"):
            outcomes.append(answer)
        else:
            wrong.append(f"{answer} for {_shown(reader.sample, data)}")
    grown = _peak() - before
    if grown > MEMORY_BYTES:
        wrong.append(f"took {grown >> 20} MiB")
    return _round(reader.name, seed, count, outcomes, wrong)


def _shown(sample: bytes, data: bytes) -> str:
    """Where a damaged file first differs."""
    at = next((i for i, (a, b) in enumerate(zip(sample, data, strict=False)) if a != b), min(len(sample), len(data)))
    return f"{len(data)} bytes, at {at}: {data[max(0, at - 20) : at + 60]!r}"


def _round(name: str, seed: int, steps: int, outcomes: Sequence[str], wrong: Sequence[str]) -> Round:
    area = f"parser: {name}"
    return Round(
        area=area,
        cases=1,
        steps=steps,
        outcomes=counted(outcomes),
        differences=tuple(Difference(area=area, seed=seed, what=what) for what in wrong),
    )


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


def readers(corpus: Corpus, root: Path) -> list[Reader]:
    """Everything that the judge's process reads of others: what children leave, and what is kept on the disk."""
    left = _Folder(corpus.compiled, root / "compiled")

    def of_folder(name: str, file: str, read: Callable[[Path], object], damage: Damage = damaged) -> Reader:
        return Reader(name=name, sample=corpus.compiled[file], read=left.reading(file, read), damage=damage)

    def program(folder: Path) -> object:
        return compiling.program_in(folder, V5E, seconds=1.0)

    def hlo(folder: Path) -> object:
        module = load_hlo(folder)
        return [module.fingerprint(name) for name in module.ops], computed_operands(module), module.parameters()

    listing, outline = corpus.top("packed-bundles-post-ra.txt"), corpus.top("post-bundle-packing-post-ra.txt")
    known = load_hlo(left.root)

    def listings(folder: Path) -> object:
        dumps = Dumps(folder / "schedule", known, "a compiler")
        return [dumps.load(name) for name in dumps.names]

    return [
        of_folder("record of the compiler", compiling.RECORD, program, damaged_json),
        of_folder("HLO proto", OPTIMIZED, program),
        of_folder("HLO proto, read on", OPTIMIZED, hlo, flipped),
        of_folder("HLO proto before the passes", LOWERED, lambda f: copies.find(load_hlo(f), load_hlo(f, LOWERED))),
        of_folder("table of tokens", "schedule/tokens.json", program, damaged_json),
        of_folder("VMEM report", corpus.named("vmem_report.html"), program),
        of_folder("count of spills", corpus.named("utilization.txt"), program),
        of_folder("listing", listing, listings),
        of_folder("outline", outline, listings),
        *_texts(corpus),
        *_records(corpus, root),
        *_kept(corpus, root),
    ]


def _texts(corpus: Corpus) -> list[Reader]:
    return [
        Reader(name="compiler's error", sample=corpus.error, read=lambda data: classify(data.decode(errors="replace"))),
        Reader(
            name="kernel configuration",
            sample=corpus.configuration,
            read=lambda data: kernel_config.read(data.decode(errors="replace")),
            damage=damaged_json,
        ),
        Reader(
            name="executable's image",
            sample=corpus.executable,
            read=lambda data: image.constant_segment(data, compiler="a compiler"),
        ),
    ]


def _records(corpus: Corpus, root: Path) -> list[Reader]:
    """What the candidate's, the values' and the machine's children leave."""
    candidate = _Folder(corpus.candidate, root / "candidate")
    values = root / "values"
    values.mkdir()

    def traced(path: Path) -> object:
        with contextlib.closing(Folder.at(path)) as folder:
            return tracer.read(folder, "kernel.py", freeze=True)

    def answer(data: bytes) -> object:
        (values / "answer.json").write_bytes(data)
        read = answer_in(values / "answer.json")
        return [read[key] for key in ("status", "message", "worst", "rms", "seconds", "control", "modules")]

    def arrays(data: bytes) -> object:
        (values / "arrays.npz").write_bytes(data)
        return read_arrays(values / "arrays.npz", 1 << 24)["input0"]

    return [
        Reader(
            name="record of the candidate",
            sample=corpus.candidate[tracer.RECORD],
            read=candidate.reading(tracer.RECORD, traced),
            damage=damaged_json,
        ),
        Reader(name="answer of the values", sample=corpus.answer, read=answer, damage=damaged_json),
        Reader(name="arrays of the values", sample=corpus.arrays, read=arrays),
        Reader(
            name="timeline of the machine", sample=corpus.timeline, read=schedule.timeline_in, damage=damaged_json,
            refusals=(Refusal,),
        ),
    ]  # fmt: skip


def _kept(corpus: Corpus, root: Path) -> list[Reader]:
    """What is kept in the repository."""
    space = root / "repository"
    corpus.repository(space)
    history = History(space)
    pending = history.state_dir / "pending.json"

    def unfinished(data: bytes) -> object:
        pending.write_bytes(data)
        try:
            return journal.recover(history)
        finally:
            pending.unlink(missing_ok=True)
            (space / ledger.NAME).write_bytes(corpus.ledger)

    def rows(data: bytes) -> object:
        (space / ledger.NAME).write_bytes(data)
        try:
            return log.rows(space)
        finally:
            (space / ledger.NAME).write_bytes(corpus.ledger)

    def lock(data: bytes) -> object:
        return problem.decode(data, "a lock")

    def row(data: bytes) -> object:
        return ledger.parse_row(data.decode())

    return [
        Reader(name="problem lock", sample=corpus.lock, read=lock, damage=damaged_json),
        Reader(name="problem lock, as bytes", sample=corpus.lock, read=lock),
        Reader(name="ledger", sample=corpus.ledger, read=rows),
        Reader(name="row", sample=corpus.ledger.splitlines()[1], read=row, refusals=(ValueError,)),
        Reader(name="journal", sample=corpus.journal, read=unfinished, damage=damaged_json),
    ]


# --- readers in jailed children ---


class _Native:
    """Damaged artefacts, read in a jailed child that is replaced whenever it ends."""

    def __init__(self, corpus: Corpus, root: Path) -> None:
        self._corpus, self._root, self._child = corpus, root, None
        self._children = 0

    def __call__(self, seed: int) -> Round:
        generator = np.random.default_rng(seed)
        files = [self._damaged(generator) for _ in range(NATIVE)]
        outcomes: list[str] = []
        wrong: list[str] = []
        while len(outcomes) + len(wrong) < len(files):
            rest = files[len(outcomes) + len(wrong) :]
            for answer in self._asked(rest):
                (outcomes if answer in ("read", "refused", "ended the child") else wrong).append(answer)
        return _round("artefact, in a child", seed, len(files), outcomes, wrong)

    def _damaged(self, generator: np.random.Generator) -> bytes:
        """The artefact with damage to itself, or to the body of its kernel."""
        artefact = self._corpus.artefact
        if generator.integers(3) == 0:
            return damaged(artefact, generator)
        text = self._corpus.body
        body = flipped(base64.b64decode(text), generator)
        return artefact.replace(text, base64.b64encode(body)) if generator.integers(4) else flipped(artefact, generator)

    def _asked(self, files: Sequence[bytes]) -> list[str]:
        """The answers for the first files, up to one that ends the child."""
        child = self._started()
        folder = child.request()
        for number, data in enumerate(files):
            (folder / f"{number:04d}.{native_worker.PROGRAM}").write_bytes(data)
        ending = child.ask(folder, LIMITS)
        written = folder / native_worker.ANSWERS
        answers: list[str] = json.loads(written.read_text()) if written.exists() else []
        return answers if ending.how == "answered" else [*answers, "ended the child"]

    def _started(self) -> Child:
        if self._child is None or not self._child.alive:
            self.close()
            self._children += 1
            self._child = Child(native_worker.__name__, directory=self._root / f"native{self._children}")
        return self._child

    def close(self) -> None:
        if self._child is not None:
            self._child.close()


def _machine(corpus: Corpus, root: Path, workers: Workers) -> Callable[[int], Round]:
    """Damaged dumps, run by the machine in its own child: a value, a refusal, or a failure that it reports."""
    folder = workers.folder("damaged")
    left = _Folder(corpus.compiled, folder)
    names = [name for name in corpus.compiled if name.endswith((".txt", ".pb", "tokens.json"))]
    del root

    def run(seed: int) -> Round:
        generator = np.random.default_rng(seed)
        outcomes, wrong = [], []
        for _ in range(MACHINE):
            name = names[int(generator.integers(len(names)))]
            sound = corpus.compiled[name]
            (left.root / name).write_bytes(damaged(sound, generator))
            try:
                program = replace(corpus.program, dump_dir=left.root)
                schedule.step(workers.machine, program, V5E, Mesh(), corpus.steering)
                outcomes.append("read")
            except Refusal as refusal:
                (wrong if refusal.status.name == "INTERNAL" else outcomes).append(
                    f"{name}: {refusal.message}" if refusal.status.name == "INTERNAL" else "refused"
                )
            except RuntimeError as error:
                wrong.append(f"{name}: {str(error).splitlines()[0]} … {str(error).splitlines()[-1]}")
            finally:
                (left.root / name).write_bytes(sound)
        return _round("dumps, by the machine in its child", seed, MACHINE, outcomes, wrong)

    return run


@contextlib.contextmanager
def opened(*, quick: bool = False) -> Iterator[list[Callable[[int], Round]]]:
    """The rounds of all readers; ``quick`` leaves out what is asked in children."""
    root = Path(tempfile.mkdtemp(prefix="fuzz-"))
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, root, ignore_errors=True)
        workers = stack.enter_context(Workers(V5E, keep=True, compiles=False))
        corpus = made(workers)
        inside = [_round_of(reader) for reader in readers(corpus, root)]
        if quick:
            yield inside
            return
        native = _Native(corpus, root)
        stack.callback(native.close)
        yield [*inside, native, _machine(corpus, root, workers)]


def _round_of(reader: Reader) -> Callable[[int], Round]:
    return lambda seed: checked(reader, seed)
