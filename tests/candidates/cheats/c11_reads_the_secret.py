"""Cheat 11: looks for the judge's secret and its cached answers on the disk."""
# rejected as: IMPORT_FAILED

import dataclasses

_os = dataclasses.sys.modules["os"]
_root = _os.environ["PYTHONPATH"]
_names = _os.listdir(_root)
