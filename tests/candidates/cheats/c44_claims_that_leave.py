"""Cheat 44: leaves with success when it is asked for claims."""
# rejected as: IMPORT_FAILED
# kind: raises anything
# caught by: contained exceptions
# left out of: tests


def get_tiling_meta():
    raise SystemExit(0)
