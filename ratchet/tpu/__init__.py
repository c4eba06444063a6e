"""What a program does and costs on a TPU; knows no kernel file, no git. Its library: :mod:`ratchet.tpu.library`."""
