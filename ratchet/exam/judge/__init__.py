"""The verdict: compile, memory, copies, correctness, roofline, audit, score, seal."""
