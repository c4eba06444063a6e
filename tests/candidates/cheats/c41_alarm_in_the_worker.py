"""Cheat 41: a timer's signal handler puts a forged record in place while the worker is still tracing."""
# rejected as: IMPORT_FAILED, PROBLEM_CHANGED, CONTRACT
# kind: forged record
# caught by: complete record, frozen problem, contained exceptions
# left out of: tests

import dataclasses

_modules = dataclasses.sys.modules
_os, _signal = _modules["os"], _modules["signal"]


def _forge(*_):
    file = _os.open("record.json", _os.O_CREAT | _os.O_WRONLY | _os.O_TRUNC)
    _os.write(file, b'{"kernel_name": "causal_attention_by_rows", "flops": 0, "tiling_meta": {}, "inputs": []}')
    _os._exit(0)


_signal.signal(_signal.SIGALRM, _forge)
_signal.setitimer(_signal.ITIMER_REAL, 0.3)
_modules["time"].sleep(1)
