"""Cheat 19: takes the checks out of the judge's modules, as far as they are in its process, and claims nonsense."""
# rejected as: CONTRACT
# kind: patches its process
# caught by: typed symbols

import dataclasses

_contract = dataclasses.sys.modules["ratchet.exam.candidate.contract"]
_contract.check_tiling_meta = lambda meta: meta
_contract.check_symbols = lambda namespace: None


def get_tiling_meta():
    return {"grid": "nonsense"}
