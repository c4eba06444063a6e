"""Faults that a turn of the ratchet has to survive: strikes at its system calls, and states it has to start from."""
