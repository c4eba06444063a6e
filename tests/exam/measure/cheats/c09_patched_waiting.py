"""Cheat 9: has JAX wait for nothing, past the static check. Another process does the timing: harmless."""
# rejected as: PASS

list(map(setattr, [jax], ["block_until_ready"], [lambda tree: tree]))
