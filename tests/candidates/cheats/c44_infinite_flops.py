"""Cheat 44: claims infinitely many FLOPs."""
# rejected as: CONTRACT
# kind: odd claims
# caught by: typed symbols
# left out of: tests


def compute_flops():
    return float("inf")
