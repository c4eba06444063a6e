"""Cheat 44: claims FLOPs by an integer that compares as it likes."""
# rejected as: CONTRACT
# kind: odd claims
# caught by: typed symbols
# left out of: tests


class Count(int):
    def __init__(self, *_):
        self.equal = True


def compute_flops():
    return Count(1 << 60)
