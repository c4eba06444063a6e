"""Cheat 10: forges the record that the judge reads, answers in the worker's place on every open channel, and leaves."""
# rejected as: IMPORT_FAILED, PROBLEM_CHANGED, CONTRACT
# kind: forged record
# caught by: complete record, frozen problem, typed symbols

import dataclasses

_os = dataclasses.sys.modules["os"]
_file = _os.open("record.json", _os.O_CREAT | _os.O_WRONLY)
_os.write(_file, b'{"status": "PASS", "kernel_name": "causal_attention_by_rows", "flops": 1, "score": 99999}')
for _channel in range(3, 64):
    try:
        _os.write(_channel, b"record.json\n")
    except OSError:
        pass
_os._exit(0)
