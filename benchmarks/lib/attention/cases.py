"""The shapes that are compared, what each implementation is swept over, and the cache of what came of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.lib import cache
from benchmarks.lib.cache import ProgramCache, Recipe
from ratchet.tpu.chips import CHIPS, V5E
from ratchet.tpu.compiler.environment import compiler_version

Config = dict[str, Any]
Settings = Mapping[str, Sequence[Config]]
"""By implementation."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Self-attention of one length, of the heads that one chip has."""

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
    dim_v: int = 0
    """Of values and output; 0 where it is ``dim``."""
    softcap: float = 0
    sinks: bool = False

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
        of_dim, of_dim_v = (4, 3) if grad else (1, 1)
        return 2 * self.pairs * (of_dim * self.dim + of_dim_v * (self.dim_v or self.dim))

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

TRAINING = {
    "llama-3 8b": Shape(batch=1, heads=4, kv_heads=1, seq=8192, dim=128, causal=True),
    "llama-3 70b": Shape(batch=1, heads=8, kv_heads=1, seq=8192, dim=128, causal=True),
    "qwen3 8b": Shape(batch=2, heads=4, kv_heads=1, seq=4096, dim=128, causal=True),
    "qwen3 235b": Shape(batch=1, heads=8, kv_heads=1, seq=4096, dim=128, causal=True),
    "gemma-2 9b": Shape(batch=1, heads=2, kv_heads=1, seq=8192, dim=256, causal=True, softcap=50.0),
    "gemma-2 9b window": Shape(batch=1, heads=2, kv_heads=1, seq=8192, dim=256, causal=True, softcap=50.0, window=4096),
    "gemma-3 12b": Shape(batch=1, heads=2, kv_heads=1, seq=8192, dim=256, causal=True),
    "gemma-3 12b window": Shape(batch=1, heads=2, kv_heads=1, seq=8192, dim=256, causal=True, window=1024),
    "gemma-3 27b window": Shape(batch=1, heads=4, kv_heads=2, seq=8192, dim=128, causal=True, window=1024),
    "deepseek-v3": Shape(batch=1, heads=4, kv_heads=4, seq=4096, dim=192, dim_v=128, causal=True),
    "gpt-oss 20b": Shape(batch=1, heads=8, kv_heads=1, seq=4096, dim=64, causal=True, sinks=True),
    "gpt-oss 20b window": Shape(batch=1, heads=8, kv_heads=1, seq=4096, dim=64, causal=True, sinks=True, window=128),
}
"""Layers of published models at lengths that they are trained with: the heads of a few chips' tensor parallelism.
Gemma 3 caps nothing, so that the layers with a cap are its predecessor's."""

ODD = {"odd": Shape(batch=1, heads=4, kv_heads=1, seq=5120, dim=128, causal=True)}
"""A length that few blocks divide."""

PATTERNS = {
    "window": Shape(batch=1, heads=8, kv_heads=8, seq=8192, dim=128, causal=True, window=1024),
    "documents": Shape(batch=1, heads=8, kv_heads=8, seq=8192, dim=128, causal=True, documents=8),
    "mask": Shape(batch=1, heads=8, kv_heads=8, seq=4096, dim=128, causal=True, prefix=1024),
}
"""Shapes in which fewer pairs attend, or more."""

PEERS = ("flash", "splash", "tokamax", "xla")
MORE_VMEM = {"compiler": {"xla_tpu_scoped_vmem_limit_kib": "65536"}}
"""Peers set no limit of their own; the compiler's default of 16 MiB holds no blocks of 2048. Users may raise it."""


def forward_blocks(q: int, unroll: int, **more: int) -> dict[str, int]:
    """Of our forward pass: a block of queries, and how many blocks of 512 keys are in a turn."""
    return {"block_q": q, "block_kv": 512, "rows": 128, "unroll": unroll, **more}


def blocks(q: int, kv: int, rows: int) -> dict[str, int]:
    """Of our backward pass: a block of queries and of keys, the rows and columns of a chain of operations."""
    return {"block_q": q, "block_kv": kv, "rows": rows, "strip": 256}


def backward_blocks(dim: int) -> tuple[dict[str, int], ...]:
    """Of our backward pass, for heads of ``dim``: what is tried. Chains are as long as the registers like."""
    return tuple(blocks(q, q, rows) for q, rows in ((1024, chain(dim)), (1024, 1024), (512, 512)))


def chain(dim: int) -> int:
    """The rows of a chain for heads of ``dim``: fewer of a wider head."""
    return 256 if dim > 128 else 512


def _forward(*sizes: tuple[int, int], **more: int) -> tuple[Config, ...]:
    return tuple({"forward": forward_blocks(q, unroll, **more)} for q, unroll in sizes)


def _flash(*sizes: tuple[int, int, int]) -> tuple[Config, ...]:
    return tuple({"q": q, "k_major": major, "k": k, **MORE_VMEM} for q, major, k in sizes)


def _splash(*sizes: tuple[int, int, int]) -> tuple[Config, ...]:
    return tuple({"block_q": q, "block_kv": kv, "block_kv_compute": compute, **MORE_VMEM} for q, kv, compute in sizes)


def _gradients(*sizes: tuple[int, int, int]) -> tuple[Config, ...]:
    return tuple({"block_q_dkv": q, "block_kv_dkv": kv, "block_kv_dkv_compute": compute} for q, kv, compute in sizes)


def _published(layouts: str, *sizes: int) -> Config:
    """A setting of tokamax's with its scheduler; ``layouts`` of q, k and v: 1 has the head dimension last, 2 first."""
    return {**_splash(sizes)[0], "scheduler": True, "layouts": tuple(map(int, layouts))}  # type: ignore[arg-type]


def _scheduled(configs: Sequence[Config]) -> list[Config]:
    return [{**config, "scheduler": True} for config in configs]


FLASH = _flash((1024, 1024, 1024), (512, 1024, 512), (2048, 1024, 1024), (2048, 2048, 1024))
SPLASH = _splash((1024, 2048, 256), (1024, 2048, 512), (2048, 2048, 512), (1024, 1024, 1024), (2048, 1024, 1024),
                  (512, 1024, 512), (4096, 2048, 512))  # fmt: skip
"""In the order of what came out at the headline."""
_SPLASH_SHORT = {4096: _splash((1024, 1024, 256), (1024, 2048, 256)), 2048: _splash((1024, 1024, 256), (512, 512, 512))}
"""Where blocks of 2048 would hold much of the diagonal."""
_SPLASH_BACKWARD = _gradients((1024, 2048, 1024), (1024, 1024, 512), (2048, 2048, 1024))

OURS = _forward((2048, 4), (4096, 4), (2048, 2), (1024, 2))
OURS_BAND = tuple({"forward": forward_blocks(q, 1, block_kv=kv)} for q in (1024, 512) for kv in (512, 256))
"""Where a window is narrower than a block of queries: all its keys are in straight code."""

# Chips with matrix units of 256 x 256: every implementation is tried in as many ways at every shape.
OURS_WIDE = (OURS[0], *_forward((2048, 2), (1024, 2), ahead=7), OURS[2])
"""There a task takes half the time, and waits as long for its maximum: more tasks ahead are tried, too."""
OURS_QUICK = _forward((1024, 2))
"""Where a window is several blocks long: larger ones compile for over an hour for tpu7x, with the backward pass."""
WIDE_SPLASH = _splash((2048, 2048, 512), (2048, 2048, 1024), (1024, 1024, 512), (2048, 1024, 1024))
_WIDE_BACKWARD = _gradients((1024, 1024, 512), (1024, 1024, 1024), (512, 512, 512))
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
_NARROW = 1024
"""Keys of a window up to which blocks of 2048 hold mostly pairs that do not attend."""
_TRAINING_BLOCKS = (WIDE_SPLASH[2], *WIDE_SPLASH[:2], WIDE_SPLASH[3])
_PATTERN_BLOCKS = _splash((1024, 1024, 512), (512, 512, 512), (1024, 512, 512), (2048, 1024, 512))
_NARROW_BLOCKS = (_PATTERN_BLOCKS[1], _PATTERN_BLOCKS[0], *_PATTERN_BLOCKS[2:])
"""What came out first at the layers of models is first."""


def sweep(impl: str, name: str, *, grad: bool, chip: str = V5E.name) -> Sequence[Config]:
    """The settings of an implementation that are tried at the shape ``name``; with ``grad`` of no pattern."""
    if name in PATTERNS:
        settings = _pattern(PATTERNS[name])
    elif name in TRAINING:
        settings = _training(TRAINING[name], chip, grad=grad)
    elif chip != V5E.name:
        settings = _wide_gradients(chip, name) if grad else _wide(chip, name)
    else:
        settings = _narrow_gradients(name) if grad else _narrow(name)
    return settings.get(impl, [{}])


def _pattern(shape: Shape) -> Settings:
    tabled = tuple({"forward": {}, "table_tile": tile} for tile in (512, 1024, 2048, 256))
    return {
        "ours": OURS_BAND if shape.window else tabled,
        "flash": FLASH if shape.documents > 1 else (),  # it has no windows and no masks
        "splash": _PATTERN_BLOCKS,
        "tokamax": (*_PATTERN_BLOCKS[:3], *_scheduled(_PATTERN_BLOCKS[:1])),
    }


def ours_forward(chip: str) -> tuple[Config, ...]:
    """What is tried of our forward pass on a chip."""
    return OURS if chip == V5E.name else OURS_WIDE


def ours_at(shape: Shape, chip: str, *, grad: bool) -> tuple[Config, ...]:
    """What is tried of ours at a shape: forward blocks, or with the backward pass its blocks and the first of those."""
    forward = OURS_BAND if 0 < shape.window <= _NARROW else ours_forward(chip)
    if grad and chip == "tpu7x" and shape.window > _NARROW:
        forward = OURS_QUICK
    return tuple({**forward[0], "backward": one} for one in backward_blocks(shape.dim)) if grad else forward


def _training(shape: Shape, chip: str, *, grad: bool) -> Settings:
    """Four settings of each, with the backward pass three of its blocks; of tokamax what it publishes comes first.

    jax's flash attention has no such extras, and plain XLA takes a hundred times as long.
    """
    special = shape.window or shape.softcap or shape.sinks or shape.dim_v
    narrow, wide = 0 < shape.window <= _NARROW, chip != V5E.name
    splash = _NARROW_BLOCKS if narrow else WIDE_SPLASH if wide else _TRAINING_BLOCKS
    tokamax = [config for one in splash[:2] for config in (*_scheduled([one]), one)]
    if wide and not narrow:
        published = "d=64" if shape.dim == 64 else "d=256" if shape.dim > 128 else "headline"
        tokamax = [TOKAMAX_BEST[chip][published], *_scheduled(splash[:3])]
    if grad:
        splash = tuple({**splash[0], **one} for one in _WIDE_BACKWARD)
        tokamax = [{**tokamax[0], **one} for one in _WIDE_BACKWARD]
    flash = () if special else FLASH[: 3 if grad else 4]
    return {"ours": ours_at(shape, chip, grad=grad), "flash": flash, "splash": splash, "tokamax": tokamax, "xla": ()}


def _wide(chip: str, name: str) -> Settings:
    """On a chip with wide matrix units."""
    tokamax = (TOKAMAX_BEST[chip][name], *_scheduled(WIDE_SPLASH[:3]))
    return {"ours": OURS_WIDE, "flash": FLASH, "splash": WIDE_SPLASH, "tokamax": tokamax}


def _wide_gradients(chip: str, name: str) -> Settings:
    """There, with the backward pass, whose blocks are what is swept; those of the forward pass are the same in all."""
    return {
        "ours": [{**OURS_WIDE[0], "backward": one} for one in backward_blocks(SHAPES[name].dim)],
        "flash": FLASH[:3],
        "splash": [{**WIDE_SPLASH[0], **one} for one in _WIDE_BACKWARD],
        "tokamax": [{**TOKAMAX_BEST[chip][name], **one} for one in _WIDE_BACKWARD],
    }


def _splash_blocks(name: str) -> tuple[Config, ...]:
    """On v5e: more at the headline. The other shapes get those that came out first there or near it."""
    return SPLASH if name == "headline" else _SPLASH_SHORT.get(SHAPES[name].seq, SPLASH[:2])


def _narrow(name: str) -> Settings:
    headline, splash = name == "headline", _splash_blocks(name)
    return {
        "ours": OURS if headline else OURS[:2],
        "flash": FLASH[: 3 if headline else 1],
        "splash": splash,
        "tokamax": [*splash, *_scheduled(splash[: 3 if headline else 1])],
    }


def _narrow_gradients(name: str) -> Settings:
    headline, first, rows = name == "headline", _splash_blocks(name)[0], chain(SHAPES[name].dim)
    swept = [{**first, **one} for one in _SPLASH_BACKWARD]
    return {
        "ours": [{**OURS[0], "backward": blocks(1024, 1024, rows)}],
        "flash": FLASH[:1],
        "splash": [*swept, {**swept[0], "fused": False}] if headline else swept[:2],
        "tokamax": [*swept[: 3 if headline else 1], {**swept[0], "dq_reduction_steps": 3}],
    }


SOURCES = tuple(f"pallas_flash/{name}.py" for name in ("operator", "config", "tables", "target", "kernels/*"))
"""What decides a program whose blocks are given."""


def attention_programs(folder: Path = cache.ROOT / "attention") -> ProgramCache:
    """The cache of recipes of :mod:`benchmarks.lib.attention.programs`; records are figures or an ``error``."""
    # The machine decides, too, and the constants of its chip, but not a benchmark's own wiring.
    common = cache.digest(*(f"ratchet/tpu/{room}/*.py" for room in ("dump", "machine", "account", "chips")))
    common += compiler_version()
    versions = {
        "ours": common + cache.digest(*SOURCES),
        "kernel.py": common + cache.digest("kernel.py"),
        "tokamax": common + cache.version_of("tokamax"),
    }

    def version(recipe: Recipe) -> str:
        chip = CHIPS[recipe.get("chip", V5E.name)]
        return f"{versions.get(recipe['impl'], common)}{chip}{chip.constants}"

    return ProgramCache(folder, worker="benchmarks.lib.attention.worker", version=version)
