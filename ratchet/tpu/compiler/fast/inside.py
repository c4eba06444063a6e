"""The fast route inside of a compiler process: bundles from a profile, in place of dumps, and stubbed kernels."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jax import export
from jaxlib import _profiler  # type: ignore[attr-defined]

from ratchet.tpu.compiler.environment import DUMP_FOLDER
from ratchet.tpu.compiler.fast.bundles import Schedule, scheduled, schedules
from ratchet.tpu.dump.files import LARGE, LAST_PASS, named
from ratchet.tpu.mlir import kernel_config
from ratchet.tpu.mlir.bindings import body_of, ir, mosaic_module, rebuilt, stablehlo_of
from ratchet.tpu.mlir.calls import target, walk

LOOK_SECONDS = 0.05
"""How often the folder of a compile under way is looked at: a text that has grown no more is complete, mostly."""
LOOKS_PER_PROFILE = 10
"""So often the compiler is asked what it has registered, which takes some 4 ms."""


def profiled(lowered: Any) -> Any:
    """``lowered.compile()``; the texts that are read of its units are made of what it registered.

    Where that does not fit together, a unit lacks its listing, and who asked compiles the program as any other.
    """
    registered()  # what is left of a program that did not compile
    units = Units(Path(os.environ[DUMP_FOLDER]))
    with units.written_meanwhile():
        compiled = lowered.compile()
    with contextlib.suppress(ValueError):
        units.write(registered())
    return compiled


def registered() -> bytes:
    """What the compiler registered for profilers since this was asked last, as an ``XSpace``.

    The session ends at once: one that lasts keeps a core busy, and what was compiled before it is in it, too.
    """
    options = _profiler.ProfileOptions()
    options.host_tracer_level = options.python_tracer_level = 0
    return bytes(_profiler.ProfilerSession(options).stop())


class Units:
    """The texts of a program's units in its folder of dumps."""

    def __init__(self, dumps: Path) -> None:
        self._dumps = dumps
        self._schedules: dict[str, Schedule] = {}
        """By the name of the unit."""
        self._written: dict[Path, int] = {}
        """By the text of a last pass that others were made of: its size, as it was then."""

    @contextlib.contextmanager
    def written_meanwhile(self, least: int = LARGE) -> Iterator[None]:
        """While the compiler works, write what there is of units whose last text has ``least`` bytes or more.

        Of a large unit it takes a second or two to dump that text, after it has registered the unit, and as long
        again for what follows.
        """
        done = threading.Event()
        thread = threading.Thread(target=self._write_early, args=(done, least))
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def _write_early(self, done: threading.Event, least: int) -> None:
        looks: Counter[tuple[Path, int]] = Counter()
        for number in itertools.count():
            if done.wait(LOOK_SECONDS):
                return
            with contextlib.suppress(ValueError):  # that is for the end to say
                if number % LOOKS_PER_PROFILE == 0:
                    self._know(registered())
                for text in self._texts():
                    looks[look := (text, text.stat().st_size)] += 1
                    if look[1] >= least and looks[look] == 2:
                        self._know(registered())
                        self._write(text)

    def write(self, space: bytes) -> None:
        """Write, for each unit that has a text of its last pass, the texts that are read of it, and remove that one.

        Args:
            space: what was registered of units that are not known yet.

        Raises:
            ValueError: where text and profile do not agree, or do not read.
        """
        self._know(space)
        for text in self._texts():
            if self._written.get(text) != text.stat().st_size:
                self._write(text)
            if text in self._written:
                text.unlink()

    def _texts(self) -> list[Path]:
        return sorted(self._dumps.glob(f"*-{LAST_PASS}.txt"))

    def _know(self, space: bytes) -> None:
        for name, schedule in schedules(space).items():
            if self._schedules.setdefault(name, schedule) != schedule:
                raise ValueError(f"two modules of {name:.80}")

    def _write(self, text: Path) -> None:
        dump, size = named(text), text.stat().st_size
        if dump and dump.name in self._schedules:
            for label, written in scheduled(text.read_text(), self._schedules[dump.name]).items():
                (self._dumps / f"{dump.unit}-00-{label}.txt").write_text(written)
            self._written[text] = size


def stubbed(program: export.Exported) -> export.Exported:
    """``program`` with the body of each kernel emptied: the same calls, operands, windows, scratch and configuration.

    Raises:
        Refusal: ``CANNOT_VERIFY`` for a kernel whose configuration or module does not read.
    """
    module = stablehlo_of(program)
    with module.context, ir.Location.unknown():
        for op in list(walk(module.operation)):
            if target(op) == "tpu_custom_call":
                body, config = kernel_config.read(str(ir.StringAttr(op.attributes["backend_config"]).value))
                op.attributes["backend_config"] = ir.StringAttr.get(kernel_config.write(_emptied(body), config))
    return rebuilt(program, module)


def _emptied(body: bytes) -> bytes:
    """A serialised Mosaic module whose kernel only returns; the functions that say where windows are stay."""
    module: Any = mosaic_module(body)
    with module.context, ir.Location.unknown():
        kernel = module.operation.regions[0].blocks[0].operations[0].operation
        operations = [view.operation for view in kernel.regions[0].blocks[0].operations]
        for operation in reversed(operations[:-1]):
            operation.erase()
        return body_of(module)
