"""Pallas-Flash: attention for TPU v5e by kernels that were earned with the ratchet."""
