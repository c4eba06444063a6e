"""Cheat 40: metadata that asks the compiler to leave out operations with side effects."""
# rejected as: HOST_CALLBACK
# kind: host callback
# caught by: tokens
# left out of: tests
# base: c40_hlo_in_metadata

METADATA = {"xla_allow_dce_side_effecting_op": "yes", "_xla_compute_type": "host", "inlineable": "false"}
