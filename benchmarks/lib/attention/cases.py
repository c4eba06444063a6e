"""The shapes that are compared, and what each implementation is swept over. Data; nothing runs here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from ratchet.tpu.chips import V5E


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Self-attention of one length."""

    batch: int
    heads: int
    kv_heads: int
    seq: int
    dim: int
    causal: bool
    window: int = 0
    """Keys that a query attends, its own among them, where it is causal; 0 for all."""
    documents: int = 1
    """Documents of equal length that the sequence is packed of."""
    prefix: int = 0
    """First keys that all queries attend, beside the causal ones: a mask that is no band."""

    @property
    def pairs(self) -> int:
        """Pairs of a query and a key that attend, all heads. A prefix is wider than no window and no document."""
        length = self.seq // self.documents
        one = length * (length + 1) // 2 if self.causal else length**2
        if self.window:
            one -= (length - self.window) * (length - self.window + 1) // 2
        one += self.prefix * (self.prefix - 1) // 2
        return self.batch * self.heads * self.documents * one

    def flops(self, *, grad: bool) -> int:
        """Useful FLOPs: two products forward, five backward (scores again, and four gradients)."""
        return (7 if grad else 2) * 2 * self.pairs * self.dim

    def program(self, impl: str, config: dict[str, Any], *, grad: bool = False, chip: str = V5E.name) -> dict[str, Any]:
        """The recipe of ``impl`` at this shape: see :mod:`benchmarks.lib.attention.programs`."""
        return {"impl": impl, "chip": chip, "shape": asdict(self), "grad": grad, "config": config}


SHAPES = {
    "headline": Shape(batch=1, heads=1, kv_heads=1, seq=16384, dim=128, causal=True),
    "d=64": Shape(batch=1, heads=8, kv_heads=8, seq=8192, dim=64, causal=True),
    "d=256": Shape(batch=1, heads=4, kv_heads=4, seq=8192, dim=256, causal=True),
    "grouped": Shape(batch=1, heads=16, kv_heads=4, seq=4096, dim=128, causal=True),
    "not causal": Shape(batch=1, heads=8, kv_heads=8, seq=4096, dim=128, causal=False),
    "2k": Shape(batch=4, heads=8, kv_heads=8, seq=2048, dim=128, causal=True),
    "32k": Shape(batch=1, heads=2, kv_heads=2, seq=32768, dim=128, causal=True),
}

PATTERNS = {
    "window": Shape(batch=1, heads=8, kv_heads=8, seq=8192, dim=128, causal=True, window=1024),
    "documents": Shape(batch=1, heads=8, kv_heads=8, seq=8192, dim=128, causal=True, documents=8),
    "mask": Shape(batch=1, heads=8, kv_heads=8, seq=4096, dim=128, causal=True, prefix=1024),
}
"""Shapes in which fewer pairs attend, or more."""

SEQ = 2048
"""Errors are taken at this length at most, and at one key head: executing a chip's program on a CPU has its price."""

PEERS = ("flash", "splash", "tokamax", "xla")
MORE_VMEM = {"compiler": {"xla_tpu_scoped_vmem_limit_kib": "65536"}}
"""Peers set no limit of their own; the compiler's default of 16 MiB holds no blocks of 2048. Users may raise it."""
FLASH = tuple(
    {"q": q, "k_major": major, "k": k, **MORE_VMEM}
    for q, major, k in (
        (1024, 1024, 1024), (512, 1024, 512), (2048, 1024, 1024), (2048, 2048, 1024),
    )
)  # fmt: skip


def _splash(*blocks: tuple[int, int, int]) -> tuple[dict[str, Any], ...]:
    return tuple({"block_q": q, "block_kv": kv, "block_kv_compute": compute, **MORE_VMEM} for q, kv, compute in blocks)


SPLASH = _splash((1024, 2048, 256), (1024, 2048, 512), (2048, 2048, 512), (1024, 1024, 1024), (2048, 1024, 1024),
                  (512, 1024, 512), (4096, 2048, 512))  # fmt: skip
"""In the order of what came out at the headline."""
_SPLASH_SHORT = {4096: _splash((1024, 1024, 256), (1024, 2048, 256)), 2048: _splash((1024, 1024, 256), (512, 512, 512))}
"""Where blocks of 2048 would hold much of the diagonal."""
_SPLASH_BACKWARD = tuple({"block_q_dkv": q, "block_kv_dkv": kv, "block_kv_dkv_compute": compute}
                         for q, kv, compute in ((1024, 2048, 1024), (1024, 1024, 512), (2048, 2048, 1024)))  # fmt: skip


# Chips with matrix units of 256 x 256: every implementation is tried in as many ways at every shape.
WIDE_OURS = tuple(
    {"forward": {"block_q": q, "block_kv": kv, "rows": rows, "strip": 256, "unroll": unroll}}
    for q, kv, rows, unroll in (
        (2048, 2048, 512, 4),
        (2048, 2048, 1024, 2),
        (1024, 1024, 512, 2),
        (2048, 1024, 1024, 2),
    )
)
WIDE_SPLASH = _splash((2048, 2048, 512), (2048, 2048, 1024), (1024, 1024, 512), (2048, 1024, 1024))
_WIDE_BACKWARD = tuple({"block_q_dkv": q, "block_kv_dkv": kv, "block_kv_dkv_compute": compute}
                       for q, kv, compute in ((1024, 1024, 512), (1024, 1024, 1024), (512, 512, 512)))  # fmt: skip


def _published(layouts: str, *blocks: int) -> dict[str, Any]:
    """A setting of tokamax's with its scheduler; ``layouts`` of q, k and v: 1 has the head dimension last, 2 first."""
    return {**_splash(blocks)[0], "scheduler": True, "layouts": tuple(map(int, layouts))}  # type: ignore[arg-type]


TOKAMAX_BEST = {
    "v6e": {
        "headline": _published("211", 2048, 2048, 512),
        "d=64": _published("222", 2048, 2048, 512),
        "d=256": _published("211", 2048, 2048, 512),
        "grouped": _published("211", 2048, 2048, 512),
        "not causal": _published("211", 2048, 2048, 512),
        "2k": _published("211", 1024, 1024, 512),
        "32k": _published("211", 2048, 2048, 512),
    },
    "tpu7x": {
        "headline": _published("121", 2048, 2048, 512),
        "d=64": _published("222", 2048, 2048, 512),
        "d=256": _published("121", 2048, 2048, 512),
        "grouped": _published("111", 2048, 2048, 512),
        "not causal": _published("111", 4096, 4096, 256),
        "2k": _published("121", 1024, 1024, 512),
        "32k": _published("121", 2048, 2048, 512),
    },
}
"""What its published autotuning has at each shape's head dimension and length, or at the next longer one; at the
longest, of 16384, for one that is longer (``benchmarks/data/chips``)."""
_PATTERN_BLOCKS = _splash((1024, 1024, 512), (512, 512, 512), (1024, 512, 512), (2048, 1024, 512))


def backward_blocks(dim: int) -> Iterator[dict[str, int]]:
    """Of our backward pass, for heads of ``dim``: what is tried. Chains are as long as the registers like."""
    for block, chain in ((1024, 256 if dim > 128 else 512), (1024, 1024), (512, 512)):
        yield {"block_q": block, "block_kv": block, "rows": chain, "strip": 256}


def _ours(shape: Shape, *, grad: bool) -> Iterator[dict[str, Any]]:
    rows = 256 if shape.dim > 128 else 512
    forward = {"block_q": 2048, "block_kv": 2048, "rows": rows, "strip": 256}
    backward = {"block_q": 1024, "block_kv": 1024, "rows": rows, "strip": 256}
    if grad:
        yield {"forward": {**forward, "unroll": 4}, "backward": backward}
        return
    yield {"forward": {**forward, "unroll": 4}}
    if shape == SHAPES["headline"]:
        yield {"forward": {**forward, "unroll": 2}}
        yield {"forward": {**forward, "block_kv": 1024, "rows": 2 * rows, "unroll": 2}}
        yield {"forward": {**forward, "block_q": 4096, "unroll": 8}}
        yield {"forward": {**forward, "unroll": 4, "chunk_kv": 2048}}


def _wide(impl: str, chip: str, name: str) -> Iterator[dict[str, Any]]:
    """On a chip with wide matrix units."""
    if impl == "ours":
        yield from WIDE_OURS
    elif impl == "flash":
        yield from FLASH
    elif impl == "splash":
        yield from WIDE_SPLASH
    elif impl == "tokamax":
        yield TOKAMAX_BEST[chip][name]
        yield from ({**one, "scheduler": True} for one in WIDE_SPLASH[:3])
    else:
        yield {}


def _wide_grad(impl: str, chip: str, name: str) -> Iterator[dict[str, Any]]:
    """There, with the backward pass, whose blocks are what is swept; those of the forward pass are the same in all."""
    if impl == "ours":
        yield from ({**WIDE_OURS[1], "backward": blocks} for blocks in backward_blocks(SHAPES[name].dim))
    elif impl == "flash":
        yield from FLASH[:3]
    elif impl in ("splash", "tokamax"):
        forward = TOKAMAX_BEST[chip][name] if impl == "tokamax" else WIDE_SPLASH[0]
        yield from ({**forward, **backward} for backward in _WIDE_BACKWARD)
    else:
        yield {}


def _pattern(impl: str, shape: Shape) -> Iterator[dict[str, Any]]:
    """At a shape of :data:`PATTERNS`."""
    if impl == "ours" and shape.window:
        for q, kv, rows in ((1024, 512, 512), (512, 512, 512), (1024, 1024, 512), (512, 256, 256)):
            yield {"forward": {"block_q": q, "block_kv": kv, "rows": rows, "strip": 256, "unroll": 2}}
    elif impl == "ours":
        for tile, rows in ((512, 512), (1024, 512), (1024, 1024), (256, 256)):
            yield {"forward": {"rows": rows, "strip": 256, "unroll": 2}, "table_tile": tile}
    elif impl == "flash":
        yield from FLASH if shape.documents > 1 else ()  # it has no windows and no masks
    elif impl == "splash":
        yield from _PATTERN_BLOCKS
    elif impl == "tokamax":
        yield from _PATTERN_BLOCKS[:3]
        yield {**_PATTERN_BLOCKS[0], "scheduler": True}
    else:
        yield {}


def sweep(impl: str, name: str, *, grad: bool, chip: str = V5E.name) -> Iterator[dict[str, Any]]:
    """The settings of an implementation that are tried at the shape ``name``; with ``grad`` of no pattern."""
    if name in PATTERNS:
        yield from _pattern(impl, PATTERNS[name])
    elif chip != V5E.name:
        yield from (_wide_grad if grad else _wide)(impl, chip, name)
    else:
        yield from _narrow(impl, name, grad=grad)


def _narrow(impl: str, name: str, *, grad: bool) -> Iterator[dict[str, Any]]:
    """On v5e: more at the headline. The other shapes get those that came out first there or near it."""
    wide = name == "headline"
    if impl == "ours":
        yield from _ours(SHAPES[name], grad=grad)
    elif impl == "flash":
        yield from FLASH[:3] if wide and not grad else FLASH[:1]
    elif impl in ("splash", "tokamax"):
        blocks = SPLASH if wide else _SPLASH_SHORT.get(SHAPES[name].seq, SPLASH[:2])
        if not grad:
            yield from blocks
            if impl == "tokamax":
                yield from ({**one, "scheduler": True} for one in (blocks[:3] if wide else blocks[:1]))
            return
        for backward in _SPLASH_BACKWARD if wide else _SPLASH_BACKWARD[: 2 if impl == "splash" else 1]:
            yield {**blocks[0], **backward}
        if impl == "splash" and wide:
            yield {**blocks[0], **_SPLASH_BACKWARD[0], "fused": False}
        if impl == "tokamax":
            yield {**blocks[0], **_SPLASH_BACKWARD[0], "dq_reduction_steps": 3}
    else:
        yield {}
