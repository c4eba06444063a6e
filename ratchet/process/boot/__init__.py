"""How a process of the judge's starts: from sources that were read once, in the judge's own environment."""
