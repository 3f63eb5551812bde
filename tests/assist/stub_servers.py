"""Stand-ins on loopback for servers elsewhere: a language model, and a model hub."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

COMMIT = "c" * 40
FILES = {"config.json": b'{"layers": 2}', "weights.bin": bytes(range(256)) * 400}


@dataclass
class Served:
    """url: where it answers. seen: (method, path, headers, body) of each request."""

    url: str
    seen: list[tuple[str, str, dict[str, str], Any]] = field(default_factory=list)


@contextmanager
def serving(handler: Callable[[BaseHTTPRequestHandler, Any], None]) -> Iterator[Served]:
    """A server on a free port of loopback that answers each request by the handler."""
    served = Served("")

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            """Silence."""

        def _answer(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            body = json.loads(self.rfile.read(length)) if length else None
            served.seen.append((self.command, self.path, dict(self.headers), body))
            handler(self, body)

        do_GET = do_POST = do_HEAD = _answer

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    served.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def send(request: BaseHTTPRequestHandler, document: Any, status: int = 200) -> None:
    """Answer with JSON."""
    body = json.dumps(document).encode()
    request.send_response(status)
    request.send_header("Content-Type", "application/json")
    request.send_header("Content-Length", str(len(body)))
    request.end_headers()
    request.wfile.write(body)


def hub(request: BaseHTTPRequestHandler, _: Any, files: dict[str, bytes] = FILES) -> None:
    """The endpoints of the hub that searching and downloading use."""
    path, _, query = request.path.partition("?")
    if path == "/api/models":
        score = {"trendingScore": 7} if "trending" in query else {}
        send(request, [{"id": "org/tiny", "modelId": "org/tiny", "downloads": 12, "likes": 3, "tags": [], **score}])
    elif path.startswith("/api/models/org/tiny/tree/"):
        send(request, [{"type": "file", "path": name, "size": len(data), "oid": name} for name, data in files.items()])
    elif path.startswith("/api/models/org/tiny"):
        siblings = [{"rfilename": name} for name in files]
        send(request, {"id": "org/tiny", "modelId": "org/tiny", "sha": COMMIT, "siblings": siblings, "tags": []})
    elif path.startswith(f"/org/tiny/resolve/{COMMIT}/"):
        _file(request, files[path.rpartition(f"{COMMIT}/")[2]])
    else:
        body = b"{}"
        request.send_response(404)
        request.send_header("X-Error-Code", "RepoNotFound")
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)


def _file(request: BaseHTTPRequestHandler, data: bytes) -> None:
    """One file, whole or from where an interrupted download stopped."""
    begin = int(request.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")[0])
    request.send_response(206 if begin else 200)
    for name, value in {
        "ETag": f'"{len(data)}"',
        "X-Repo-Commit": COMMIT,
        "Content-Length": str(len(data) - begin),
        "Accept-Ranges": "bytes",
        "Content-Range": f"bytes {begin}-{len(data) - 1}/{len(data)}",
    }.items():
        request.send_header(name, value)
    request.end_headers()
    if request.command == "GET":
        request.wfile.write(data[begin:])
