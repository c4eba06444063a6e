"""Cheat 4: does half of the work where a variable of the judge's says that it is being checked."""
# rejected as: WRONG_VALUES, INSENSITIVE
# kind: detects its caller
# caught by: allowance, probes
# left out of: tests
# base: c04_looks_at_the_clock

kernel_fn = _honest
if "JAX_PLATFORMS" in _modules["os"].environ or "PYTHONHASHSEED" in _modules["os"].environ:
    _block = _half
