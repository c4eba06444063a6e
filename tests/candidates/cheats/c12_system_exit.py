"""Cheat 12: leaves with success before anything is checked."""
# rejected as: IMPORT_FAILED

raise SystemExit(0)
