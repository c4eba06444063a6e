"""Pallas-Flash: attention for TPU v5e, forward and backward, by kernels that were earned with the ratchet.

Blocks come from ``tuned.json``: the fastest that ``python -m benchmarks.tune`` tried per chip, head dimension, length
and pattern, with runners-up, evaluator and compiler; a chip that is not in it takes those of the v5e. A shape that is
not in it takes the entry of the same pattern (causal or not) whose head dimension occupies as many lanes, or nearest to
that, and of those the one whose length is nearest in ratio; blocks then shrink to divide the shape with little padding.
Batch, heads and dtype are not asked: heads follow one another in the kernels' grids and differ only in how much of the
first copy is hidden. Who knows better passes ``config``.
"""

from pallas_flash.config import Config
from pallas_flash.dot_product import dot_product_attention
from pallas_flash.kernels.flash_backward import BackwardBlocks
from pallas_flash.kernels.flash_forward import ForwardBlocks
from pallas_flash.kernels.paged_decode import PagedBlocks
from pallas_flash.kernels.paged_prefill import PrefillBlocks
from pallas_flash.operator import attention
from pallas_flash.serving import latent_attention, paged_attention

__all__ = [
    "BackwardBlocks",
    "Config",
    "ForwardBlocks",
    "PagedBlocks",
    "PrefillBlocks",
    "attention",
    "dot_product_attention",
    "latent_attention",
    "paged_attention",
]
