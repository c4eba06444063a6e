"""Cheat 29: never ends, and neither does its child."""
# rejected as: TIMEOUT
# kind: never ends
# caught by: limits
# left out of: tests

import dataclasses

try:
    dataclasses.sys.modules["os"].fork()
except OSError:  # the jail lets no process start
    pass
while True:
    dataclasses.sys.modules["time"].sleep(1)
