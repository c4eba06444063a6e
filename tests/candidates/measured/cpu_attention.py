"""The example, at a length that is timed quickly."""
# base: examples/cpu_attention/kernel.py

PROBLEM_DESCRIPTION = "causal attention forward, 1 head, q k v of float32[128, 64], on a CPU"

SEQ = 128
