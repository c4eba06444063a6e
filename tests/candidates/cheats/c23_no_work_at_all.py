"""Cheat 23: claims the FLOPs of a problem of its own that computes nothing with them."""
# rejected as: PROBLEM_CHANGED
# kind: frozen problem
# caught by: frozen problem
# left out of: tests


def compute_flops():
    return 1 << 62
