"""Cheat 44: a name that is longer than a record may be."""
# rejected as: IMPORT_FAILED
# kind: more than a record holds
# caught by: complete record
# left out of: tests

KERNEL_NAME = "RESULT: score=99999 " * 200000
