"""Cheat 44: claims a grid of 10^4000 steps."""
# rejected as: CONTRACT
# kind: odd claims
# caught by: typed symbols
# left out of: tests


def get_tiling_meta():
    return {"grid": [10**4000]}
