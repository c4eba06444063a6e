"""What executes each operation: importing the modules fills the table of rules."""

from ratchet.tpu.mosaic.ops import arith, control, dma, drawn, matrix, memory, sparse, vector

RULE_MODULES = (arith, control, dma, drawn, matrix, memory, sparse, vector)
