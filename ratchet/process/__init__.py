"""Ground: how a Python of ours starts and is walled in. Knows no TPU."""
