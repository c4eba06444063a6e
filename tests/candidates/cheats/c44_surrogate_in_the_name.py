"""Cheat 44: a name that no encoding can write."""
# rejected as: NO_GAIN
# kind: text that no encoding can write
# caught by: contained exceptions
# base: row_softmax
# problem: its own
# left out of: tests, quick

KERNEL_NAME = "softmax \ud800"
