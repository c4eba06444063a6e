"""Cheat 29: fills the disk with what it prints."""
# rejected as: OUT_OF_MEMORY
# kind: prints without end
# caught by: limits
# said: wrote more than a kernel file may

_line = "x" * (1 << 20)
while True:
    print(_line)
