"""What tiles, VMEM, spills and copies do to attention on one chip, modelled: 1 head, 16384 x 128, causal, bfloat16.

    python -m benchmarks.tiles [--json FILE]

jax's ``flash_attention`` fetches a block of keys for every grid step; ``pallas_flash`` keeps keys and values of a head
in VMEM and walks them in a loop. Both over square blocks. Then ``pallas_flash`` over the head dimension, 8 heads of
4096: what of the time is spent outside the kernel, where XLA pads and copies.
"""

from __future__ import annotations

from benchmarks.lib.command import command
from benchmarks.lib.table import show_all
from benchmarks.lib.tiles import block_rows, dim_rows


def main() -> None:
    options = command(__doc__).parse_args()
    show_all({"block sizes": block_rows(), "head dimensions": dim_rows()}, json_file=options.json)


if __name__ == "__main__":
    main()
