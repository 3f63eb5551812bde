"""An OpenAI-compatible server around a small decoder in torch, in several configurations. Not a test.

    python validation/decoder_server.py --port 8000 [--slots 8] [--graph] [--layers 16] [--width 2048] [--device cuda]

The weights are random and the tokens mean nothing; the work of a step is real: attention over the cache of each
request, a new token for every request that is being answered, one forward pass for a new prompt. --graph replays the
step as a CUDA graph. --slots: requests answered at once; others wait.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import queue
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import torch
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

MODEL, VOCABULARY, HEAD = "random-decoder", 32000, 128
LONGEST = 1024  # tokens of a request: its prompt and its answer


class Decoder(torch.nn.Module):
    """A stack of layers with attention over a cache of its own for each slot."""

    def __init__(self, layers: int, width: int, slots: int, device: str) -> None:
        super().__init__()
        self.heads, self.slots = width // HEAD, slots
        dtype = torch.bfloat16 if device == "cuda" else torch.float32
        made = {"device": device, "dtype": dtype}

        def weight(*shape: int) -> torch.Tensor:
            return torch.randn(*shape, **made) / shape[0] ** 0.5  # type: ignore[arg-type]

        self.embedding, self.out = weight(VOCABULARY, width), weight(width, VOCABULARY)
        self.stack = [
            (weight(width, 3 * width), weight(width, width), weight(width, 4 * width), weight(4 * width, width))
            for _ in range(layers)
        ]
        shape = (layers, 2, slots, self.heads, LONGEST, HEAD)
        self.cache = torch.zeros(shape, **made)  # type: ignore[arg-type]
        self.tokens = torch.zeros(slots, dtype=torch.long, device=device)
        self.places = torch.zeros(slots, dtype=torch.long, device=device)
        self.next = torch.zeros(slots, dtype=torch.long, device=device)

    def _qkv(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return (torch.nn.functional.rms_norm(x, x.shape[-1:]) @ weight).view(len(x), 3, self.heads, HEAD)

    def _after(self, x: torch.Tensor, seen: torch.Tensor, weights: tuple[torch.Tensor, ...]) -> torch.Tensor:
        x = x + seen.reshape(len(x), -1) @ weights[1]
        return x + torch.nn.functional.silu(torch.nn.functional.rms_norm(x, x.shape[-1:]) @ weights[2]) @ weights[3]

    @torch.inference_mode()
    def step(self) -> None:
        """One more token for every slot, into self.next."""
        x, at = self.embedding[self.tokens], torch.arange(self.slots, device=self.tokens.device)
        mask = torch.arange(LONGEST, device=x.device) <= self.places[:, None]
        for number, weights in enumerate(self.stack):
            q, k, v = self._qkv(x, weights[0]).unbind(1)
            keys, values = self.cache[number]
            keys[at, :, self.places], values[at, :, self.places] = k, v
            seen = torch.nn.functional.scaled_dot_product_attention(q[:, :, None], keys, values, mask[:, None, None])
            x = self._after(x, seen.transpose(1, 2), weights)
        self.next.copy_((x @ self.out).argmax(-1))

    @torch.inference_mode()
    def read(self, slot: int, prompt: list[int]) -> int:
        """Read a prompt into the slot's cache, and return the first token of its answer."""
        x = self.embedding[torch.tensor(prompt, device=self.tokens.device)]
        for number, weights in enumerate(self.stack):
            q, k, v = (part.transpose(0, 1) for part in self._qkv(x, weights[0]).unbind(1))
            self.cache[number, 0, slot, :, : len(prompt)], self.cache[number, 1, slot, :, : len(prompt)] = k, v
            seen = torch.nn.functional.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True)[0]
            x = self._after(x, seen.transpose(0, 1), weights)
        return int((x[-1] @ self.out).argmax())


@dataclass
class Asked:
    """A request: its prompt, how many tokens it wants, and where its tokens go (None at the end)."""

    prompt: list[int]
    wanted: int
    say: Any
    given: int = 0


@dataclass
class Engine:
    """Answers requests, a token for each in every step."""

    decoder: Decoder
    graphed: bool
    waiting: queue.Queue[Asked] = field(default_factory=queue.Queue)

    def run(self) -> None:
        """Serve for ever."""
        decoder, replay = self.decoder, self._step()
        active: dict[int, Asked] = {}
        while True:
            while len(active) < decoder.slots and (not active or not self.waiting.empty()):
                asked = self.waiting.get()
                slot = next(slot for slot in range(decoder.slots) if slot not in active)
                decoder.tokens[slot], decoder.places[slot] = decoder.read(slot, asked.prompt), len(asked.prompt)
                active[slot] = asked
                self._told(active, slot)
            if not active:
                continue
            replay()
            decoder.tokens.copy_(decoder.next)
            decoder.places.add_(1).clamp_(max=LONGEST - 1)
            decoder.next.tolist()  # a server needs the tokens here
            for slot in [*active]:
                self._told(active, slot)

    def _told(self, active: dict[int, Asked], slot: int) -> None:
        asked = active[slot]
        asked.given += 1
        asked.say(" a")
        if asked.given >= asked.wanted:
            asked.say(None)
            del active[slot]

    def _step(self) -> Any:
        if not self.graphed:
            return self.decoder.step
        for _ in range(3):
            self.decoder.step()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.decoder.step()
        return graph.replay


def application(engine: Engine) -> Starlette:
    """The server."""

    async def answer(request: Request) -> Response:
        body = await request.json()
        text = json.dumps(body.get("messages") or body.get("prompt"))
        wanted = min(body.get("max_completion_tokens") or body.get("max_tokens") or 64, LONGEST // 2)
        prompt = [hash(word) % VOCABULARY for word in text.split()][: LONGEST // 2] or [0]
        loop, told = asyncio.get_running_loop(), asyncio.Queue[str | None]()
        engine.waiting.put(Asked(prompt, wanted, lambda word: loop.call_soon_threadsafe(told.put_nowait, word)))
        usage = {"prompt_tokens": len(prompt), "completion_tokens": wanted, "total_tokens": len(prompt) + wanted}

        async def events() -> AsyncIterator[str]:
            def event(choices: list[Any], **more: Any) -> str:
                kind = {"id": "x", "object": "chat.completion.chunk", "created": 0, "model": MODEL, "choices": choices}
                return f"data: {json.dumps({**kind, **more})}\n\n"

            while (word := await told.get()) is not None:
                yield event([{"index": 0, "finish_reason": None, "delta": {"role": "assistant", "content": word}}])
            yield event([{"index": 0, "finish_reason": "length", "delta": {}}])
            yield event([], usage=usage)
            yield "data: [DONE]\n\n"

        if body.get("stream"):
            return StreamingResponse(events(), media_type="text/event-stream")
        words = "".join([event async for event in events()]).count('"content"')
        choice = {"index": 0, "finish_reason": "length", "message": {"role": "assistant", "content": " a" * words}}
        whole = {"id": "x", "object": "chat.completion", "created": 0, "model": MODEL, "choices": [choice]}
        return JSONResponse({**whole, "usage": usage})

    async def models(_: Request) -> Response:
        return JSONResponse({"object": "list", "data": [{"id": MODEL, "object": "model", "owned_by": "aisp"}]})

    async def health(_: Request) -> Response:
        return JSONResponse({})

    post = Route("/v1/chat/completions", answer, methods=["POST"])
    return Starlette(routes=[post, Route("/v1/models", models), Route("/health", health)])


def main() -> None:
    """Serve until the process is ended."""
    parser = argparse.ArgumentParser()
    for name, default in (("port", 8000), ("slots", 8), ("layers", 16), ("width", 2048)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--graph", action="store_true")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    torch.manual_seed(0)
    engine = Engine(Decoder(options.layers, options.width, options.slots, options.device), options.graph)
    threading.Thread(target=engine.run, daemon=True).start()
    uvicorn.run(application(engine), host="127.0.0.1", port=options.port, log_level="warning")


if __name__ == "__main__":
    main()
