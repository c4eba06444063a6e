"""Cheat 29: takes all memory."""
# rejected as: OUT_OF_MEMORY
# kind: eats memory
# caught by: limits
# left out of: tests

import numpy as np

_much = [np.ones(1 << 40) for _ in range(9)]
