"""Subtly wrong kernels, as edits of the honest ones: name -> (honest file, edits). Each is refused on every secret."""

VARIANTS: dict[str, tuple[str, list[tuple[str, str]]]] = {}
