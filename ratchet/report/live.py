"""The page of a search under way, served to this machine alone.

A page of another site could reach a server on loopback by a name that it has resolve to 127.0.0.1; its requests carry
that name as their host, and are refused. Nothing can be changed through the server.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

LOOPBACK = "127.0.0.1"
_NAMES = (LOOPBACK, "localhost", "[::1]")
_HEADERS = {
    "Cache-Control": "no-cache",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
}


class LiveServer(ThreadingHTTPServer):
    """Serves ``/``, the page, and ``/version``, which changes when the page would.

    Raises:
        OSError: the port is in use.
    """

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, port: int, *, page: Callable[[], str], version: Callable[[], str]) -> None:
        self.page, self.version = page, version
        self._made: tuple[str, bytes] = ("", b"")
        super().__init__((LOOPBACK, port), _Handler)

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.server_port}/"

    def serves(self, host: str) -> bool:
        """Whether a request for ``host`` is one for this server."""
        return host.lower() in {f"{name}:{self.server_port}" for name in _NAMES}

    def current(self) -> bytes:
        """The page as it is now; made again only where something changed."""
        version = self.version()
        if self._made[0] != version:
            self._made = (version, self.page().encode())
        return self._made[1]


class _Handler(BaseHTTPRequestHandler):
    server: LiveServer
    protocol_version = "HTTP/1.1"
    timeout = 60

    def do_GET(self) -> None:
        if not self.server.serves(self.headers.get("Host", "")):
            self._answer(421, "text/plain; charset=utf-8", b"this server answers on loopback, under its own name\n")
        elif self.path.partition("?")[0] == "/":
            self._page()
        elif self.path.partition("?")[0] == "/version":
            self._answer(200, "text/plain; charset=utf-8", self.server.version().encode())
        else:
            self._answer(404, "text/plain; charset=utf-8", b"there is / and /version\n")

    do_HEAD = do_GET

    def _page(self) -> None:
        page = self.server.current()
        tag = f'"{hashlib.sha256(page).hexdigest()[:32]}"'
        if self.headers.get("If-None-Match") == tag:
            self._answer(304, "text/html; charset=utf-8", b"", ETag=tag)
        else:
            self._answer(200, "text/html; charset=utf-8", page, ETag=tag)

    def _answer(self, code: int, kind: str, body: bytes, **more: str) -> None:
        self.send_response(code)
        for name, value in {**_HEADERS, "Content-Type": kind, **more}.items():
            self.send_header(name, value)
        if code != 304:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def version_string(self) -> str:
        return "pallas-ratchet"

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing: a page asks every second."""
