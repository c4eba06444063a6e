"""Pallas-Flash: attention for TPU v5e, forward and backward, by kernels that were earned with the ratchet."""

from pallas_flash.config import Config
from pallas_flash.kernels.flash_backward import BackwardBlocks
from pallas_flash.kernels.flash_forward import ForwardBlocks
from pallas_flash.operator import attention

__all__ = ["BackwardBlocks", "Config", "ForwardBlocks", "attention"]
