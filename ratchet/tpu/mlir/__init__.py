"""Exported programs and Mosaic modules, read by jaxlib's MLIR bindings."""
