"""Search: which values of a kernel's knobs to judge next, and judging them, several at a time."""
