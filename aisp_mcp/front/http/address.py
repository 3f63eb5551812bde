"""The address to listen on, and the options required before other machines can reach it."""

from __future__ import annotations

import argparse
import contextlib
import errno
import ipaddress
import os
import socket
import stat
from dataclasses import dataclass
from pathlib import Path

from aisp_mcp.errors import Refused, UsageError

PATH = "/mcp"
BACKLOG = 4096  # connections that the kernel completes before they are accepted; Linux's own limit
LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")


@dataclass(frozen=True)
class Address:
    """A TCP address, or the path of a Unix socket. Port 0 means any free port."""

    host: str = ""
    port: int = 0
    family: int = socket.AF_INET
    path: Path | None = None

    @property
    def local(self) -> bool:
        """True if only this machine can reach it."""
        return self.path is not None or ipaddress.ip_address(self.host).is_loopback

    @property
    def everywhere(self) -> bool:
        """True for 0.0.0.0 and ::, which clients cannot use as a host name."""
        return self.path is None and ipaddress.ip_address(self.host).is_unspecified

    @property
    def origin(self) -> str:
        """Origin such as `http://127.0.0.1:8000`; `http://localhost` for a Unix socket."""
        return "http://localhost" if self.path else f"http://{_bracketed(self.host)}:{self.port}"

    @property
    def hosts(self) -> list[str]:
        """Allowed values of the Host header."""
        if self.path is not None or self.everywhere:
            return ["localhost"] if self.path else []
        names = LOOPBACK_NAMES if self.local else (_bracketed(self.host),)
        return [f"{name}:{self.port}" for name in names] + (list(names) if self.port == 80 else [])


def add_http(parser: argparse.ArgumentParser) -> None:
    """Add --http and its companion options."""
    group = parser.add_argument_group("HTTP", "serve HTTP instead of standard input and output; see docs/http.md")
    group.add_argument("--http", metavar="ADDRESS", help="127.0.0.1:PORT, PORT, [::1]:PORT or unix:/path/of.sock")
    group.add_argument(
        "--token-file",
        metavar="FILE",
        type=Path,
        help="file of bearer tokens; default: print a new token once",
    )
    group.add_argument("--allow-remote", action="store_true", help="permit an address that other machines can reach")
    for option, help_text in (
        ("host", "another host name that clients may use"),
        ("origin", "origin of web pages that may call the server"),
    ):
        group.add_argument(f"--allow-{option}", metavar=option.upper(), action="append", default=[], help=help_text)


def parse(text: str) -> Address:
    """Parse the value of --http. Raises UsageError BAD_ADDRESS."""
    if text.startswith("unix:") and text != "unix:":
        return Address(path=Path(text.removeprefix("unix:")).expanduser().absolute())
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdigit() and int(port) < 65536):
        raise _bad(text, "The part after the last colon must be a port, 0 to 65535.")
    if not host and ":" in text:
        raise _bad(text, "Give the address before the port; 0.0.0.0 means every address.")
    try:
        addresses = socket.getaddrinfo((host or "127.0.0.1").strip("[]"), int(port), type=socket.SOCK_STREAM)
    except OSError as error:
        raise _bad(text, f"{error.strerror}.") from None
    # A name may resolve to several addresses; most clients try IPv4.
    family, *_, socket_address = min(addresses, key=lambda address: address[0] != socket.AF_INET)
    return Address(host=str(socket_address[0]), port=int(port), family=family)


def check_exposure(address: Address, options: argparse.Namespace) -> None:
    """Raises Refused NOT_LOOPBACK for an address that other machines can reach without the options that permit it."""
    if address.local:
        return
    required = {"--allow-remote": options.allow_remote, "--token-file FILE": options.token_file is not None}
    if address.everywhere:
        required["--allow-host NAME"] = bool(options.allow_host)
    missing = [option for option, is_set in required.items() if not is_set]
    if missing:
        raise Refused(
            "NOT_LOOPBACK",
            f"Other machines can reach {_bracketed(address.host)}; anyone with the token can run programs as you.",
            f"Use 127.0.0.1 and a tunnel (ssh -L), or add {' and '.join(missing)} if you mean it.",
        )


def listen(address: Address) -> socket.socket:
    """Return a listening socket; a Unix socket is accessible to its owner only. Raises UsageError CANNOT_LISTEN."""
    try:
        if address.path is not None:
            return _listen_unix(address.path)
        listener = socket.create_server((address.host, address.port), family=address.family, backlog=BACKLOG)
        # Connections inherit it. Head and body of a response are sent separately: with Nagle's algorithm the body
        # would wait some 40 ms for the head to be acknowledged.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listener
    except OSError as error:
        name = address.path or f"{_bracketed(address.host)}:{address.port}"
        hint = "Another server uses it; stop that server, or use another address (port 0: any free port)."
        in_use = error.errno == errno.EADDRINUSE
        raise UsageError(
            "CANNOT_LISTEN", f"Cannot listen on {name}: {error.strerror or error}.", hint if in_use else None
        ) from None


def _listen_unix(path: Path) -> socket.socket:
    """Raises OSError: EADDRINUSE if a process listens there or the path is not a socket."""
    if _is_stale_socket(path):
        path.unlink()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o177)  # so that the file is private from the start
    try:
        listener.bind(str(path))
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    finally:
        os.umask(mask)
    return listener


def _is_stale_socket(path: Path) -> bool:
    """True for a socket file that no process listens on."""
    with contextlib.suppress(FileNotFoundError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        if stat.S_ISSOCK(path.lstat().st_mode):
            return probe.connect_ex(str(path)) == errno.ECONNREFUSED
    return False


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _bad(text: str, reason: str) -> UsageError:
    message = f"--http {text[:100]!r} is not an address. {reason}"
    return UsageError("BAD_ADDRESS", message, "Example: 127.0.0.1:8000.")
