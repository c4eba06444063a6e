"""Cheat 44: claims a negative number of FLOPs."""
# rejected as: CONTRACT
# kind: odd claims
# caught by: typed symbols
# left out of: tests


def compute_flops():
    return -(10**18)
