"""What executes each operation: importing the modules fills the table of rules."""

from ratchet.tpu.mosaic.ops import arith, control, dma, memory, vector

RULE_MODULES = (arith, control, dma, memory, vector)
