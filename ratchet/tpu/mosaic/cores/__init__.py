"""Kernels on several cores of one chip: TensorCores that speak to each other, subcores of SparseCores.

Each core is a coroutine that goes through the same Mosaic module on memory of its own and memory that all share, until
it waits for another (``core``, ``schedule``). What needs nobody else, a core executes in compiled runs (``plan``,
``runs``). In whichever order cores run, and whenever their copies arrive, a right kernel computes the same.
"""
