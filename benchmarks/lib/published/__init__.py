"""Kernels with published timings, rebuilt here from their descriptions, and the files their timings are in."""
