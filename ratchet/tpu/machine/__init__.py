"""The schedule machine: executes a compiled program's scalar control flow, DMAs and sync flags."""
