"""Requests from a file: prompts, or a recorded trace with when each arrived, how long it was, and which beginning it
shares with others.

    trace                                       times                        of a request
    JSON lines of Mooncake, LMCache, Dynamo,    ms; as a text, ns            input_length, output_length, hash_ids
    and AIPerf
    JSON lines of Bailian, with a chat_id       s                            the same
    JSON of kv-cache-tester: an agent           s; of a sub-agent, since     in, out, hash_ids
                                                it began
    CSV of Azure's LLM inference traces         date                         ContextTokens, GeneratedTokens
    CSV of BurstGPT                             s                            Request tokens, Response tokens

Texts are not recorded; each block of a prompt (`hash_ids`) becomes random words of its own, so equal blocks are equal
texts within a run and new ones in the next.
"""

from __future__ import annotations

import csv
import itertools
import json
import math
import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from aisp_mcp.errors import NotFound, UsageError

HINT = (
    "Give one prompt a line, or JSON with prompt, text or ShareGPT's conversations; or recorded requests: JSON lines of"
    " Mooncake, AIPerf or Bailian, CSV of Azure or BurstGPT, JSON of kv-cache-tester (docs/serve-bench.md)."
)
SECONDS, MILLISECONDS, NANOSECONDS = 1.0, 1e-3, 1e-9
AZURE = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
BURSTGPT = ("Timestamp", "Request tokens", "Response tokens")
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


def read_file(path: str, most: int) -> tuple[list[str], list[Recorded]]:
    """All prompts of a file, or its first recorded requests. Raises NotFound NO_SUCH_FILE, UsageError NO_PROMPTS,
    BAD_TRACE.
    """
    name = Path(path).name
    try:
        text = Path(path).expanduser().read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise NotFound("NO_SUCH_FILE", f"Cannot read prompts from {path[:200]!r}.", HINT) from error
    lines = [line for line in text.splitlines() if line.strip()]
    if name.lower().endswith(".csv"):
        return [], _first(_table(lines, name), most)
    whole = _structure(text)
    if isinstance(whole, Mapping) and isinstance(whole.get("requests"), list):
        return [], _first(_agent(whole["requests"], name), most)
    rows = whole if isinstance(whole, list) else [whole] if whole else [_structure(line) or line for line in lines]
    if rows and isinstance(rows[0], Mapping) and {"timestamp", "input_length"} <= rows[0].keys():
        return [], read(lines, name, most)
    texts = [text for number, row in enumerate(rows, 1) if (text := _prompt(row, number, name))]
    if not texts:
        raise UsageError("NO_PROMPTS", f"{name} contains no prompt.", HINT)
    return texts, []


def _structure(text: str) -> Mapping[str, Any] | list[Any] | None:
    """The JSON object or array that this is, if it is one."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, Mapping | list) else None


def _prompt(row: Any, number: int, name: str) -> str:
    """The text of a prompt; of a conversation the first turn, and nothing if it was not answered, as in vLLM's loader.
    Raises UsageError NO_PROMPTS.
    """
    if isinstance(row, str):
        return row
    fields = row if isinstance(row, Mapping) else {}
    turns = fields.get("conversations")
    if isinstance(turns, list) and all(isinstance(turn, Mapping) for turn in turns):
        return str(turns[0].get("value", turns[0].get("content", ""))) if len(turns) > 1 else ""
    text = fields.get("prompt") or fields.get("text")
    if not isinstance(text, str):
        known = f"it has {', '.join(map(str, fields))[:100]}" if fields else "it is no object"
        raise UsageError("NO_PROMPTS", f"Row {number} of {name} is no prompt: {known}.", HINT)
    return text


def read(lines: Sequence[str], name: str, most: int) -> list[Recorded]:
    """The first requests of a trace in JSON lines, by their time. Raises UsageError BAD_TRACE."""
    return _first((_row(line, number, name) for number, line in enumerate(lines, 1)), most)


def _first(rows: Iterable[Recorded], most: int) -> list[Recorded]:
    ordered = sorted(rows, key=lambda row: row.at_s)[:most]
    return [replace(row, at_s=row.at_s - ordered[0].at_s) for row in ordered]


def _row(line: str, number: int, name: str) -> Recorded:
    where = f"Line {number} of {name}"
    try:
        row: Any = json.loads(line)
        unit = NANOSECONDS if isinstance(row["timestamp"], str) else SECONDS if "chat_id" in row else MILLISECONDS
        at_s, tokens, output = unit * float(row["timestamp"]), int(row["input_length"]), int(row["output_length"])
        blocks = [int(block) for block in row.get("hash_ids") or ()]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise _bad(where, error) from None
    return _checked(Recorded(at_s, tokens, output, blocks), where)


def _table(lines: Sequence[str], name: str) -> Iterator[Recorded]:
    """The answered requests of a CSV. Raises UsageError BAD_TRACE."""
    rows = csv.DictReader(lines)
    columns = tuple(rows.fieldnames or ())
    if columns != AZURE and not {*columns}.issuperset(BURSTGPT):
        message = f"{name} is no table of requests that is read: its columns are {', '.join(columns)[:200]}."
        raise UsageError("BAD_TRACE", message, HINT)
    time, tokens, output = AZURE if columns == AZURE else BURSTGPT
    for number, row in enumerate(rows, 2):
        where = f"Line {number} of {name}"
        try:
            at_s = _date(row[time]) if columns == AZURE else float(row[time])
            request = Recorded(at_s, int(row[tokens]), int(row[output]), ())
        except (TypeError, ValueError) as error:
            raise _bad(where, error) from None
        if request.output_tokens:
            yield _checked(request, where)


def _date(text: str) -> float:
    at = datetime.fromisoformat(text)
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()  # else the local zone's changes would count


def _agent(entries: Sequence[Any], name: str, start_s: float = 0.0) -> Iterator[Recorded]:
    """The answered requests of an agent that began at start_s, and of its sub-agents. Raises UsageError BAD_TRACE."""
    for number, entry in enumerate(entries, 1):
        where = f"Request {number} of {name}"
        try:
            at_s = start_s + float(entry["t"])
            if entry.get("type") == "subagent":
                yield from _agent(entry["requests"], name, at_s)
                continue
            request = Recorded(at_s, int(entry["in"]), int(entry["out"]), [int(each) for each in entry["hash_ids"]])
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise _bad(where, error) from None
        if request.output_tokens:
            yield _checked(request, where)


def _bad(where: str, error: Exception) -> UsageError:
    why = f"it has no {error.args[0]}" if isinstance(error, KeyError) else str(error)
    return UsageError("BAD_TRACE", f"{where} is no recorded request: {why}.", HINT)


def _checked(row: Recorded, where: str) -> Recorded:
    """Raises UsageError BAD_TRACE."""
    if row.input_tokens < 1 or row.output_tokens < 1 or not math.isfinite(row.at_s):
        message = f"{where} has {row.input_tokens} tokens of input and {row.output_tokens} of output at {row.at_s:g} s."
        raise UsageError("BAD_TRACE", message, "All must be numbers, the tokens above 0.")
    return row


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
