"""Cheat 28: writes evidence of its own beside the judge's."""
# rejected as: IMPORT_FAILED

import dataclasses

_os = dataclasses.sys.modules["os"]
_os.open(_os.environ["PYTHONPATH"], _os.O_TMPFILE | _os.O_WRONLY)  # a file without a name, for this tree's sake
