"""Cheat 9: patches the clock."""
# rejected as: FORBIDDEN

import time

time.perf_counter_ns = lambda: 0
