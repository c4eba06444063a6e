"""Public Pallas TPU kernels: where each is, how it is called, and what becomes of it. No code of theirs is here."""
