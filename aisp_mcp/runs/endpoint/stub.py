"""A server with known latencies that speaks the OpenAI protocol, for testing load clients.

Run as a separate process (`python -m aisp_mcp.runs.endpoint.stub`), it prints its port and serves until it is ended.
Every token has its own deadline, counted from the request's arrival, so delays of the event loop do not add up.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import socket
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

MODEL = "aisp-stub"


@dataclass(frozen=True)
class Latencies:
    """Seconds to the first token, seconds between the following ones, and the maximum number of tokens per answer.

    slots: requests answered at once; further ones wait. neighbour: factor by which all is slower in some seconds, the
    same ones for every stub on this machine.
    """

    ttft_s: float
    itl_s: float
    tokens: int
    slots: int
    neighbour: float

    def slowed(self) -> float:
        """The factor of this second: three in ten seconds, at random, have the neighbour."""
        return self.neighbour if random.Random(int(time.time())).random() < 0.3 else 1.0


async def stream(
    latencies: Latencies, slots: asyncio.Semaphore, chat: bool, requested: int | None
) -> AsyncIterator[str]:
    """Server-sent events of one answer: a token a chunk, then the usage, then the end mark."""
    async with slots:
        async for event in _answer(latencies, chat, requested):
            yield event


async def _answer(latencies: Latencies, chat: bool, requested: int | None) -> AsyncIterator[str]:
    loop = asyncio.get_running_loop()
    due, count = loop.time(), min(requested or latencies.tokens, latencies.tokens)
    for number in range(count):
        due += (latencies.itl_s if number else latencies.ttft_s) * latencies.slowed()
        await asyncio.sleep(due - loop.time())
        text = {"delta": {"role": "assistant", "content": " a"}} if chat else {"text": " a"}
        yield _event({"choices": [{"index": 0, "finish_reason": None, **text}]}, chat)
    last: dict[str, Any] = {"delta": {}} if chat else {"text": ""}
    yield _event({"choices": [{"index": 0, "finish_reason": "length", **last}]}, chat)
    yield _event({"choices": [], "usage": _usage(count)}, chat)
    yield "data: [DONE]\n\n"


def _usage(count: int) -> dict[str, int]:
    return {"prompt_tokens": 16, "completion_tokens": count, "total_tokens": 16 + count}


def _event(fields: dict[str, Any], chat: bool) -> str:
    kind = "chat.completion.chunk" if chat else "text_completion"
    return f"data: {json.dumps({'id': 'x', 'object': kind, 'created': 0, 'model': MODEL, **fields})}\n\n"


def application(latencies: Latencies) -> Any:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response, StreamingResponse
    from starlette.routing import Route

    slots = asyncio.Semaphore(latencies.slots)

    async def answer(request: Request) -> Response:
        body = await request.json()
        chat = request.url.path.endswith("/chat/completions")
        requested = body.get("max_completion_tokens") or body.get("max_tokens")
        events = stream(latencies, slots, chat, requested)
        if body.get("stream"):
            return StreamingResponse(events, media_type="text/event-stream")
        count = sum([1 async for _ in events]) - 3
        text: dict[str, Any] = (
            {"message": {"role": "assistant", "content": " a" * count}} if chat else {"text": " a" * count}
        )
        choice = {"index": 0, "finish_reason": "length", **text}
        kind = "chat.completion" if chat else "text_completion"
        return JSONResponse({"id": "x", "object": kind, "created": 0, "model": MODEL, "choices": [choice],
                             "usage": _usage(count)})  # fmt: skip

    async def models(_: Request) -> Response:
        return JSONResponse({"object": "list", "data": [{"id": MODEL, "object": "model", "owned_by": "aisp"}]})

    async def health(_: Request) -> Response:
        return JSONResponse({})

    posts = [Route(path, answer, methods=["POST"]) for path in ("/v1/chat/completions", "/v1/completions")]
    return Starlette(routes=[*posts, Route("/v1/models", models), Route("/health", health)])


def main() -> int:
    """Serve on a free port of the loopback interface until the process is ended."""
    import uvicorn

    parser = argparse.ArgumentParser()
    for name in ("ttft-s", "itl-s"):
        parser.add_argument(f"--{name}", type=float, required=True)
    parser.add_argument("--tokens", type=int, required=True)
    parser.add_argument("--slots", type=int, required=True)
    parser.add_argument("--neighbour", type=float, required=True)
    options = parser.parse_args()
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(1024)  # connections before the server is up wait in the queue
    print(listener.getsockname()[1], flush=True)
    latencies = Latencies(options.ttft_s, options.itl_s, options.tokens, options.slots, options.neighbour)
    config = uvicorn.Config(application(latencies), log_level="warning", access_log=False)
    uvicorn.Server(config).run(sockets=[listener])
    return 0


if __name__ == "__main__":
    sys.exit(main())
