"""Names that the worker and those who start it share; the worker itself imports JAX."""

WORKER = "benchmarks.attention.worker"
DUMP_FOLDER = "RATCHET_DUMP_FOLDER"
COMPILER = "RATCHET_COMPILER"
