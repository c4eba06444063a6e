"""The fast route inside of a compiler process: bundles from a profile, in place of dumps, and stubbed kernels."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jax import export

from ratchet.tpu.compiler.environment import DUMP_FOLDER
from ratchet.tpu.compiler.fast.bundles import Schedule, scheduled, schedules
from ratchet.tpu.dump.files import LAST_PASS, named
from ratchet.tpu.mlir import kernel_config
from ratchet.tpu.mlir.bindings import body_of, ir, mosaic_module, rebuilt, registered, stablehlo_of, string
from ratchet.tpu.mlir.calls import target, walk


def profiled(lowered: Any) -> Any:
    """``lowered.compile()``; the texts that are read of its units are made of what it registered.

    Where that does not fit together, a unit lacks its listing, and who asked compiles the program as any other.
    """
    registered()  # what is left of a program that did not compile
    compiled = lowered.compile()
    with contextlib.suppress(ValueError):
        write_units(Path(os.environ[DUMP_FOLDER]), schedules(registered()))
    return compiled


def write_units(dumps: Path, units: Mapping[str, Schedule]) -> None:
    """Write, for each unit that has a text of its last pass, the texts that are read of it, and remove that one.

    Raises:
        ValueError: where text and schedule do not agree, or do not read.
    """
    for text in sorted(dumps.glob(f"*-{LAST_PASS}.txt")):
        dump = named(text)
        if dump and dump.name in units:
            for label, written in scheduled(text.read_text(), units[dump.name]).items():
                (dumps / f"{dump.unit}-00-{label}.txt").write_text(written)
            text.unlink()


def stubbed(program: export.Exported) -> export.Exported:
    """``program`` with the body of each kernel emptied: the same calls, operands, windows, scratch and configuration.

    Raises:
        Refusal: ``CANNOT_VERIFY`` for a kernel whose configuration or module does not read.
    """
    module = stablehlo_of(program)
    with module.context, ir.Location.unknown():
        for op in list(walk(module.operation)):
            if target(op) == "tpu_custom_call":
                body, config = kernel_config.read(string(op, "backend_config"))
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
