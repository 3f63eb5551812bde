"""Addresses that the server over HTTP listens on: loopback only, unless two options say otherwise, and Unix sockets."""

from __future__ import annotations

import socket
import stat
from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest
from http_support import Served, token_file
from waiting import PATIENCE_S


@pytest.fixture
def refusal(home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Message of the server that does not start with these options."""
    from aisp_mcp.front.mcp.main import main

    def refused(*options: str) -> str:
        with monkeypatch.context() as here:
            here.delenv("AISP_TOOL_MODULES")  # tools would stay in this process, for other tests to find
            assert main(options) == 2
        out, err = capsys.readouterr()
        assert out == ""
        return err

    return refused


@pytest.mark.anyio
async def test_a_unix_socket_is_its_owners_and_goes_with_the_server(
    refusal: Callable[..., str], tmp_path: Path
) -> None:
    path = tmp_path / "aisp.sock"
    server = Served(address=f"unix:{path}")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    async with server.client(uds=path) as client:
        assert (await client.call_tool("aisp_demo_echo", {"count": 1})).is_error is False
    assert "CANNOT_LISTEN" in refusal("--http", f"unix:{path}")
    async with httpx2.AsyncClient(transport=httpx2.AsyncHTTPTransport(uds=str(path))) as web:
        assert (await web.post("http://localhost/mcp", json={})).status_code == 401
    server.stop()
    assert not path.exists()


def test_a_socket_that_was_left_over_is_taken_over_but_a_file_is_not(
    refusal: Callable[..., str], tmp_path: Path
) -> None:
    path = tmp_path / "aisp.sock"
    first = Served(address=f"unix:{path}")
    first.process.kill()
    first.process.communicate(timeout=PATIENCE_S)
    assert path.is_socket()
    Served(address=f"unix:{path}").stop()
    path.write_text("precious")
    assert "CANNOT_LISTEN" in refusal("--http", f"unix:{path}")
    assert path.read_text() == "precious"


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"])
@pytest.mark.parametrize("options", [[], ["--allow-remote"], ["--token-file"]])
def test_nothing_but_this_machine_is_served_unless_asked_twice(
    refusal: Callable[..., str], tmp_path: Path, address: str, options: list[str]
) -> None:
    token_file(tmp_path / "tokens", "alice")
    given = [*options, str(tmp_path / "tokens")] if options == ["--token-file"] else options
    message = refusal("--http", address, *given)
    assert "NOT_LOOPBACK" in message
    assert ("--allow-remote" in message) == ("--allow-remote" not in options)


def test_every_address_needs_a_name_for_it(refusal: Callable[..., str], tmp_path: Path) -> None:
    tokens = token_file(tmp_path / "tokens", "alice")
    flags = ["--allow-remote", "--token-file", str(tmp_path / "tokens")]
    assert "--allow-host NAME" in refusal("--http", "0.0.0.0:0", *flags)
    server = Served(*flags, "--allow-host", "box.example", address="0.0.0.0:0")
    try:
        server.token = tokens["alice"]
        assert server.post({"Host": "box.example"})[0] == 200
        assert server.post({"Host": f"127.0.0.1:{server.port}"})[0] == 421
        assert server.post({"Host": f"0.0.0.0:{server.port}"})[0] == 421
        status, answer = server.post({"Host": "box.example", "Authorization": None})
        assert (status, "http://box.example/.well-known/" in answer) == (401, True)
    finally:
        server.stop()


@pytest.mark.parametrize(
    "address", ["", "nonsense", "127.0.0.1", "127.0.0.1:", "1:99999", ":80", "a b:8", "::1:x", "unix:"]
)
def test_what_is_no_address_is_refused(address: str) -> None:
    from aisp_mcp.errors import UsageError
    from aisp_mcp.front.http.address import parse

    with pytest.raises(UsageError) as caught:
        parse(address)
    assert caught.value.code == "BAD_ADDRESS"


def test_forms_of_an_address() -> None:
    from aisp_mcp.front.http.address import parse

    assert (parse("8000").host, parse("8000").port) == ("127.0.0.1", 8000)
    assert parse("[::1]:8000").origin == "http://[::1]:8000"
    assert parse("localhost:0").local
    assert not parse("0.0.0.0:1").local
    assert parse("0.0.0.0:1").everywhere
    assert parse("unix:/x/y").path == Path("/x/y")
    assert "127.0.0.1" in parse("127.0.0.1:80").hosts


def test_an_answer_is_not_held_back_until_the_client_has_acknowledged_its_head() -> None:
    from aisp_mcp.front.http.address import listen, parse

    with (
        listen(parse("127.0.0.1:0")) as listener,
        socket.create_connection(listener.getsockname()),
        listener.accept()[0] as accepted,
    ):
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
