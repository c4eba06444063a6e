"""Cheat 44: declares a mesh of no chip, to divide the work by."""
# rejected as: CONTRACT
# kind: odd claims
# caught by: typed symbols
# left out of: tests

CHIPS = 0
_honest_meta = get_tiling_meta


def get_tiling_meta():
    return _honest_meta() | {"mesh": {"chip": CHIPS}, "input_shardings": [["chip"], [], []]}
