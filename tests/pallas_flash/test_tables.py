"""How a mask is cut into tiles."""

import numpy as np
import pytest

from pallas_flash.kernels.flash_forward import SKIP, Pattern
from pallas_flash.tables import TILE_COST, Mask, suited_tile, tiles_of

SIZES = (256, 512, 1024)


def prefix(q, k):
    return (k <= q) | (k < 1024)


def blocks_of(length):
    return lambda q, k: q // length == k // length


def every_eighth(q, k):
    return (q // 256) % 8 == (k // 256) % 8


@pytest.mark.parametrize(
    ("rule", "q_len", "kv_len", "wanted"),
    [
        (prefix, 4096, 4096, 1024),
        (blocks_of(2048), 4096, 4096, 1024),
        (blocks_of(512), 4096, 4096, 512),
        (blocks_of(256), 2048, 2048, 256),
        (every_eighth, 4096, 4096, 256),
        (prefix, 700, 3001, 1024),
    ],
)
def test_a_mask_is_cut_where_its_tiles_cost_least(rule, q_len, kv_len, wanted):
    pattern, mask = Pattern(q_len=q_len, kv_len=kv_len), Mask.of(rule, q_len, kv_len)
    found = suited_tile(pattern, mask, SIZES)
    counted = {size: np.sum(tiles_of(pattern, mask, size).states != SKIP) for size in SIZES}
    assert found == min(SIZES, key=lambda size: counted[size] * (size**2 + TILE_COST)) == wanted
