"""Requests from a recorded trace: when each arrived, how long it was, and which beginning it shares with others.

Mooncake's format, which LMCache, Dynamo, Bailian and AIPerf use as well: JSON lines with `timestamp` (milliseconds;
as a text, nanoseconds), `input_length`, `output_length` and `hash_ids`, one for each block of the prompt. Texts are not
recorded; each block becomes random words of its own, so equal blocks are equal texts within a run and new ones in the
next.
"""

from __future__ import annotations

import itertools
import json
import math
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from aisp_mcp.errors import UsageError

FIELDS = ("timestamp", "input_length", "output_length")
HINT = 'Such as {"timestamp": 0, "input_length": 6755, "output_length": 500, "hash_ids": [0, 1, 2]}.'
MILLISECONDS, NANOSECONDS = 1e-3, 1e-9
# Short and frequent, so that a word is about a token.
_WORDS = re.findall(
    r"\w+",
    """
time year people way day man thing woman life child world school state family student group country problem hand part
place case week company system program question work number night point home water room mother area money story fact
month lot right study book eye job word business issue side kind head house service friend father power hour game line
end member law car city name team minute idea body back parent face level office door art
""",
)


@dataclass(frozen=True)
class Recorded:
    """One request. at_s: after the first one. blocks: of its prompt; equal ones have equal texts."""

    at_s: float
    input_tokens: int
    output_tokens: int
    blocks: Sequence[int]


def is_trace(line: str) -> bool:
    """Return True if this is a line of a trace and not a prompt."""
    try:
        row = json.loads(line)
    except ValueError:
        return False
    return isinstance(row, Mapping) and "timestamp" in row and "input_length" in row


def read(lines: Sequence[str], name: str, most: int) -> list[Recorded]:
    """The first requests of a trace, by their time. Raises UsageError BAD_TRACE."""
    rows = sorted((_row(line, number, name) for number, line in enumerate(lines, 1)), key=lambda row: row.at_s)
    first_s = rows[0].at_s
    return [Recorded(row.at_s - first_s, row.input_tokens, row.output_tokens, row.blocks) for row in rows[:most]]


def _row(line: str, number: int, name: str) -> Recorded:
    try:
        row: Any = json.loads(line)
        unit = NANOSECONDS if isinstance(row["timestamp"], str) else MILLISECONDS
        at_s, tokens, output = unit * float(row["timestamp"]), int(row["input_length"]), int(row["output_length"])
        blocks = [int(block) for block in row.get("hash_ids") or ()]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        why = f"it has no {error.args[0]}" if isinstance(error, KeyError) else str(error)
        raise UsageError("BAD_TRACE", f"Line {number} of {name} is no recorded request: {why}.", HINT) from None
    if tokens < 1 or output < 1 or not math.isfinite(at_s):
        message = f"Line {number} of {name} has {tokens} tokens of input and {output} of output at {at_s:g} s."
        raise UsageError("BAD_TRACE", message, "All must be numbers, the tokens above 0.")
    return Recorded(at_s, tokens, output, blocks)


def prompts(rows: Sequence[Recorded], seed: int) -> Iterator[str]:
    """A text for each request, about as many words as it had tokens. seed: other texts for another one."""
    size = max((math.ceil(row.input_tokens / len(row.blocks)) for row in rows if row.blocks), default=1)

    @cache
    def words(block: int) -> list[str]:
        return random.Random(f"{seed}-{block}").choices(_WORDS, k=size)

    for number, row in enumerate(rows):
        own = [] if row.blocks else random.Random(f"{seed}-own-{number}").choices(_WORDS, k=row.input_tokens)
        yield " ".join([*itertools.chain.from_iterable(map(words, row.blocks)), *own][: row.input_tokens])


def shared(rows: Sequence[Recorded]) -> float:
    """The share of all blocks that begin a prompt as in an earlier request: what a prefix cache can save."""
    seen, hits, total = set[int](), 0, 0
    for row in rows:
        hits += sum(1 for _ in itertools.takewhile(seen.__contains__, row.blocks))
        total += len(row.blocks)
        seen.update(row.blocks)
    return hits / total if total else 0.0
