"""Cheat 4: does half of the work where the process was not started by the author."""
# rejected as: WRONG_VALUES, INSENSITIVE
# kind: detects its caller
# caught by: allowance, probes
# left out of: tests
# base: c04_looks_at_the_clock

kernel_fn = _honest
if "kernel.py" not in _modules["sys"].argv[0]:
    _block = _half
