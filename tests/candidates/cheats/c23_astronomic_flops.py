"""Cheat 23: claims more FLOPs than a float holds, for an arithmetic error where nobody expects one."""
# rejected as: CONTRACT
# kind: odd claims
# caught by: typed symbols
# said: compute_flops()


def compute_flops():
    return 10**4000
