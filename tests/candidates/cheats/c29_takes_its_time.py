"""Cheat 29: takes half a minute before it traces, which a judge of many kernels has not."""
# rejected as: TIMEOUT
# kind: never ends
# caught by: limits
# left out of: tests, quick

import dataclasses

dataclasses.sys.modules["time"].sleep(30)
