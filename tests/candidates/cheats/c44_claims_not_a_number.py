"""Cheat 44: claims sizes that are no number and infinite."""
# rejected as: CONTRACT
# kind: odd claims
# caught by: typed symbols


def get_tiling_meta():
    return {
        "buffers": [{"name": "all", "size_bytes": float("nan"), "double_buffered": False}],
        "inputs": [{"name": "all", "size_bytes": float("inf"), "re_reads": 1}],
    }
