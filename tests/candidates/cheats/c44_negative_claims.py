"""Cheat 44: claims negative traffic and memory, to be credited with what is left."""
# rejected as: NO_GAIN
# kind: odd claims
# caught by: neutral text
# left out of: tests

_honest_meta = get_tiling_meta


def get_tiling_meta():
    return _honest_meta() | {
        "inputs": [{"name": "all", "size_bytes": -(1 << 40), "re_reads": 1}],
        "outputs": [{"name": "all", "size_bytes": 1, "re_reads": -(1 << 40)}],
        "vreg_estimate_bytes": -1,
    }
