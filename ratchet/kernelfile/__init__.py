"""A kernel file as syntax: knobs, shapes, what changed. Nothing of it is executed."""
