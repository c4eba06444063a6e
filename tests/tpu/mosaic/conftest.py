"""Kernels run on the CPU; decided before JAX is imported."""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
