"""Cheat 44: declares a mesh of three chips for a problem of one."""
# rejected as: LOWERING_FAILED
# kind: odd claims
# caught by: one program
# left out of: tests

_honest_meta = get_tiling_meta


def get_tiling_meta():
    return _honest_meta() | {"mesh": {"chip": 4}, "input_shardings": [["chip"], [], []]}
