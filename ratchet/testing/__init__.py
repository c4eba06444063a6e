"""Kernels in tests of their own repository."""
