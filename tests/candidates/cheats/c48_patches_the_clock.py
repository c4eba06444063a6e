"""Cheat 48: has clocks stand still and waiting return at once, in its own process: another does the timing."""
# rejected as: NO_GAIN
# kind: measured: state in Python
# caught by: one program
# base: cpu_attention
# on: cpu
# left out of: tests, quick

import dataclasses

_time = dataclasses.sys.modules["time"]
list(map(setattr, [_time, _time, jax], ["perf_counter_ns", "monotonic", "block_until_ready"], [lambda *a: 0] * 3))
