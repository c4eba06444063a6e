"""Cheat 21: imports the means of calling a library's routine."""
# rejected as: FORBIDDEN
# kind: library kernel
# caught by: static check
# left out of: tests

from jax import ffi

_call = ffi.ffi_call
