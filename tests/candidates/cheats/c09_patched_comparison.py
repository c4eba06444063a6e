"""Cheat 9: replaces the comparison that a judge might use."""
# rejected as: FORBIDDEN

jnp.allclose = lambda *_: True
