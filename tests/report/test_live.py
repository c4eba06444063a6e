"""The server on loopback: what it answers, and whom."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator

import pytest

from ratchet.report.live import LiveServer


class Changing:
    """A page that a test changes."""

    def __init__(self) -> None:
        self.now, self.made = "1", 0

    def page(self) -> str:
        self.made += 1
        return f"<p>{self.now}</p>"


@pytest.fixture
def changing() -> Changing:
    return Changing()


@pytest.fixture
def server(changing: Changing) -> Iterator[LiveServer]:
    with LiveServer(0, page=changing.page, version=lambda: changing.now) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def ask(server: LiveServer, path: str = "/", *, method: str = "GET", **headers: str) -> tuple[int, bytes, str]:
    """Status, body and ETag of one request."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=30)
    try:
        connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        return answer.status, answer.read(), answer.getheader("ETag") or ""
    finally:
        connection.close()


def test_it_serves_the_page_and_makes_it_anew_only_where_something_changed(server, changing):
    assert ask(server)[:2] == (200, b"<p>1</p>")
    tag = ask(server)[2]
    assert changing.made == 1
    assert ask(server, If_None_Match=tag)[:2] == (304, b"")
    changing.now = "2"
    assert ask(server, "/version")[:2] == (200, b"2")
    assert ask(server, If_None_Match=tag)[:2] == (200, b"<p>2</p>")
    assert changing.made == 2


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1:1", "127.0.0.1", "", "0.0.0.0:{port}"]
)
def test_another_name_is_no_name_of_this_server(server: LiveServer, host: str) -> None:
    status, body, _ = ask(server, Host=host.format(port=server.server_port))
    assert status == 421
    assert b"<p>" not in body


@pytest.mark.parametrize("name", ["localhost", "LOCALHOST", "127.0.0.1", "[::1]"])
def test_its_own_names(server: LiveServer, name: str) -> None:
    assert ask(server, Host=f"{name}:{server.server_port}")[0] == 200


@pytest.mark.parametrize("path", ["/../results.tsv", "/results.tsv", "/index.html", "/?x", "/version?x"])
def test_nothing_else_is_there(server: LiveServer, path: str) -> None:
    assert ask(server, path)[0] == (200 if "?" in path else 404)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_nothing_can_be_changed(server: LiveServer, method: str) -> None:
    assert ask(server, method=method)[0] == 501


def test_it_listens_on_loopback_alone_and_a_head_has_no_body(server: LiveServer) -> None:
    assert server.server_address[0] == "127.0.0.1"
    assert server.url == f"http://127.0.0.1:{server.server_port}/"
    assert ask(server, method="HEAD")[:2] == (200, b"")
