"""Kernels for any shape. Each file is also a kernel file that the ratchet judges: ``./ratchet.sh --kernel FILE``."""
