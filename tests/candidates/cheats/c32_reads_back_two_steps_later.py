"""Cheat 32: as if two steps were enough for a block to be back in HBM: its write has only begun when it is read."""
# rejected as: MEMORY_HAZARD
# kind: in-place race
# caught by: windows read ahead
# left out of: tests
# said: window_race
# problem: its own
# base: c32_reads_its_output_back

BEHIND = 2
