"""Public Pallas TPU kernels: where each is, how it is called, and what becomes of it. No code of theirs is here."""

from benchmarks.coverage import cores, jax_ops, parallel, serving, slices, tpu_inference, training

__all__ = ["cores", "jax_ops", "parallel", "serving", "slices", "tpu_inference", "training"]
"""In the order of the list."""
