"""Cheat 12: prints a result of its own and ends the process with success, so that no handler runs."""
# rejected as: IMPORT_FAILED
# kind: raises anything
# caught by: complete record
# left out of: tests

import dataclasses

print("RESULT: score=99999.0 latency=0.0001ms util=100.00% tflops=197.00 decision=kept", flush=True)
dataclasses.sys.modules["os"]._exit(0)
