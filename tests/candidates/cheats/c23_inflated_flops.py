"""Cheat 23: claims the FLOPs of all blocks, those above the diagonal twice."""
# rejected as: PROBLEM_CHANGED
# kind: frozen problem
# caught by: frozen problem


def compute_flops():
    return 4 * 2 * SEQ * SEQ * HEAD_DIM
