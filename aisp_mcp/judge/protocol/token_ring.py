"""Requests and tokens of one trace in a worker's control block: the parent writes requests, the worker tokens.

The parent trusts none of the 64-bit words: it copies each token when it first sees it, so that a later change has no
effect, and reads no word twice. The ring has room for all tokens of a trace and some more: an honest worker overwrites
none, and if more tokens than fit are unread, some of them were not requested.

    arrived | closed | emitted | request 0: id, tokens, length, prompt … | request 1 … | token 0: request, token | …

On processors other than x86, another core may see the count before the tokens. There the parent reads the tokens that
had already been counted one poll earlier.
"""

from __future__ import annotations

import platform
from typing import Any

from aisp_mcp.bench import Request
from aisp_mcp.judge.protocol.layout import HEADER, SLOT
from aisp_mcp.judge.protocol.shared_memory import ControlBlock

ARRIVED, CLOSED, EMITTED = range(3)
LAGS = platform.machine() not in ("x86_64", "AMD64")  # a token is read one poll after it was counted


class RingOverflowError(Exception):
    """More tokens were counted than the ring holds, or fewer than before."""


class TokenRing:
    """View of the ring in one process."""

    def __init__(self, control: ControlBlock) -> None:
        assert control.layout.ring
        self._words: Any = control.ring
        self._shape = control.layout.ring
        self._seen = self._counted = 0

    # --- for the parent

    def reset(self) -> None:
        """Begin a trace. Call it only while the worker is stopped."""
        self._words[ARRIVED] = self._words[CLOSED] = self._words[EMITTED] = 0
        self._seen = self._counted = 0

    def hand_out(self, request: Request) -> None:
        """Write the next request, then count it."""
        words, count = self._words, self._words[ARRIVED]
        begin = HEADER + count * (SLOT + self._shape.prompt)
        words[begin], words[begin + 1], words[begin + 2] = request.id, request.tokens, len(request.prompt)
        for index, token in enumerate(request.prompt, begin + SLOT):
            words[index] = token
        words[ARRIVED] = count + 1

    def close(self) -> None:
        """Signal that no further request will come."""
        self._words[CLOSED] = 1

    def read(self) -> list[tuple[int, int]]:
        """(request, token) of each token emitted since the last call. Raises RingOverflowError."""
        counted = self._words[EMITTED]
        if not self._counted <= counted <= self._shape.capacity:
            raise RingOverflowError(f"{counted} tokens are counted, the trace has room for {self._shape.capacity}")
        end = self._counted if LAGS else counted
        self._counted, begin = counted, self._shape.slots_end
        tokens = [
            (self._words[begin + 2 * index], self._words[begin + 2 * index + 1]) for index in range(self._seen, end)
        ]
        self._seen = end
        return tokens

    # --- for the worker

    def arrivals(self, seen: int) -> list[Request]:
        """Requests beyond the first `seen` that have arrived."""
        requests = []
        for number in range(seen, self._words[ARRIVED]):
            begin = HEADER + number * (SLOT + self._shape.prompt)
            identity, tokens, length = self._words[begin : begin + SLOT]
            prompt = tuple(self._words[begin + SLOT : begin + SLOT + length])
            requests.append(Request(identity, prompt, tokens))
        return requests

    @property
    def closed(self) -> bool:
        """True once no further request will come."""
        return bool(self._words[CLOSED])

    def emit(self, request: int, token: int) -> None:
        """Write a token, then count it. Raises IndexError if the ring is full."""
        words, count = self._words, self._words[EMITTED]
        index = self._shape.slots_end + 2 * count
        words[index], words[index + 1] = request, token
        words[EMITTED] = count + 1
