"""Cheat 41: writes bytecode for the judge's next start into its private folder."""
# rejected as: IMPORT_FAILED
# kind: writes outside of its folder
# caught by: landlock
# wall: landlock
# said: PermissionError
# left out of: tests

import dataclasses

_modules = dataclasses.sys.modules
_os = _modules["os"]
_prefix = _modules["sys"].pycache_prefix
_os.open(_prefix, _os.O_TMPFILE | _os.O_WRONLY)
