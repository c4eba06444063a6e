"""pallas-ratchet: a judge and a ratchet for Pallas TPU kernels."""

__version__ = "0.1.0"
