"""Kernels on more than one core of a chip: right ones on each chip that has the cores, and wrong ones."""
