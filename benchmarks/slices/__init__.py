"""Programs on slices of chips: right ones on every topology, and wrong ones."""
