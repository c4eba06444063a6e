"""Cheat 44: an exception that no encoding can write."""
# rejected as: IMPORT_FAILED
# kind: text that no encoding can write
# caught by: contained exceptions
# base: row_softmax
# left out of: tests, quick

raise ValueError("\ud800 \x1b[2J")
