"""Cheat 12: leaves with success before anything is checked."""
# rejected as: IMPORT_FAILED
# kind: raises anything
# caught by: contained exceptions
# left out of: tests

raise SystemExit(0)
