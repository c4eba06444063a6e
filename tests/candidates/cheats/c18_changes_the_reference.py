"""Cheat 18: importing it changes how the reference is computed."""
# rejected as: PROBLEM_CHANGED
# kind: patches its process
# caught by: frozen problem
# left out of: tests

jax.config.update("jax_default_matmul_precision", "highest")
