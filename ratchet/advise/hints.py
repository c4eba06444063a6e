"""What the compiler is asked for: VMEM, unrolled loops. Pure."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ratchet.advise.advice import Edit, Rewrite
from ratchet.kernelfile.program import Kernel, is_call, kernels, keyword
from ratchet.kernelfile.shapes import tpu_of
from ratchet.kernelfile.syntax import Change, File, changed

LIMIT = "100 << 20"
"""Bytes of VMEM: most of a v5e's 128 MiB, where the compiler gives 16 unless asked."""
TURNS = (2, 4)


def rewrites(file: File) -> Iterator[Rewrite]:
    """Loops of a known length unrolled."""
    for kernel in kernels(file):
        if kernel.alone:
            yield from _unrolled(kernel)


def with_limit(kernel: Kernel) -> set[Change] | None:
    """A higher limit of VMEM, unless one is set already; None where the call cannot be given one."""
    file, tpu = kernel.file, tpu_of(kernel.file)
    written = keyword(kernel.call, "compiler_params")
    if written is None:
        if tpu is None:
            return None
        return {_added(file, kernel.call, f"compiler_params={tpu}.CompilerParams(vmem_limit_bytes={LIMIT})")}
    if not isinstance(written, ast.Call):
        return None
    if keyword(written, "vmem_limit_bytes") is not None:
        return set()
    return {_added(file, written, f"vmem_limit_bytes={LIMIT}")}


def raised(file: File) -> bytes | None:
    """The file with a higher limit of VMEM for each of its kernels; None where none can be given one."""
    changes = {one for kernel in kernels(file) for one in with_limit(kernel) or ()}
    return changed(file.source, changes) if changes else None


def _added(file: File, call: ast.Call, text: str) -> Change:
    """One more keyword of a call."""
    at = file.span(call)[1] - 1
    before = file.source[:at].rstrip()
    comma = "" if before.endswith((b",", b"(")) else ", "
    return Change(start=at, end=at, text=comma + text)


def _unrolled(kernel: Kernel) -> Iterator[Rewrite]:
    file = kernel.file
    for node in ast.walk(kernel.body):
        if not (isinstance(node, ast.Call) and is_call(node, "loop", "fori_loop") and len(node.args) >= 2):
            continue
        first, end = (kernel.file.number(one) for one in node.args[:2])
        if first is None or end is None or keyword(node, "unroll") is not None:
            continue
        for turns in TURNS:
            if end - first > turns and (end - first) % turns == 0:
                lines = tuple(range(node.lineno, (node.end_lineno or node.lineno) + 1))
                after = changed(file.source, [_added(file, node, f"unroll={turns}")])
                yield Rewrite(edit=Edit.UNROLL, after=after, lines=lines, subject=file.text(node.args[1]), factor=turns)
