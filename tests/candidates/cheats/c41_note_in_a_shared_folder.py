"""Cheat 41: leaves a note for its next verdict in the folders that all processes share."""
# rejected as: IMPORT_FAILED
# kind: writes outside of its folder
# caught by: landlock
# wall: landlock
# said: PermissionError
# left out of: tests

import dataclasses

_os = dataclasses.sys.modules["os"]
_errors = []
for _folder in ("/dev/shm", "/tmp", "/var/tmp", "/run"):
    try:
        _os.close(_os.open(_folder + "/ratchet-note", _os.O_CREAT | _os.O_WRONLY))
    except OSError as error:
        _errors.append(error)
if len(_errors) == 4:
    raise PermissionError(13, "no folder is shared")
