"""Cheat 29: never ends, and neither does its child."""
# rejected as: TIMEOUT

import dataclasses

dataclasses.sys.modules["os"].fork()
while True:
    dataclasses.sys.modules["time"].sleep(1)
