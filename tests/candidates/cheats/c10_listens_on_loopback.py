"""Cheat 10: waits on the loopback network for another process to say what to answer."""
# rejected as: IMPORT_FAILED
# kind: loopback network
# caught by: seccomp
# said: PermissionError
# wall: seccomp
# left out of: tests

import dataclasses

_os = dataclasses.sys.modules["os"]
_socket = dataclasses.sys.modules["_socket"]
_server = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
_server.bind(("127.0.0.1", 0))
