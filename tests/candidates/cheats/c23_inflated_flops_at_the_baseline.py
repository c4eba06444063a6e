"""Cheat 23: claims inflated FLOPs from the beginning, when the problem is frozen."""
# rejected as: CONTRACT
# problem: its own


def compute_flops():
    return 4 * 2 * SEQ * SEQ * HEAD_DIM
