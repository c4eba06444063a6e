"""Cheat 44: declares a mesh of three chips for a problem of one."""
# rejected as: LOWERING_FAILED
# kind: odd claims
# caught by: one program
# left out of: tests
# base: c44_mesh_of_nothing

CHIPS = 4
