"""A small load client that is called like GuideLLM and writes its report: it really sends requests and times them.

WRONG_BY in the environment multiplies what it reports: a client that must not be believed.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit


def options(words: list[str]) -> dict[str, dict[str, str]]:
    """Flags of the form --name key=value,key=value."""
    pairs = {words[i].removeprefix("--"): words[i + 1] for i in range(len(words) - 1) if words[i].startswith("--")}
    return {name: dict(part.split("=", 1) for part in text.split(",") if "=" in part) for name, text in pairs.items()}


def request(backend: dict[str, str], prompt: str) -> dict[str, Any] | None:
    """One streamed chat request, timed; None if it fails."""
    body = {"model": backend["model"], "stream": True, "max_tokens": int(backend["max_tokens"]),
            "messages": [{"role": "user", "content": prompt}]}  # fmt: skip
    begin, first, tokens = time.time(), None, 0
    try:
        connection = http.client.HTTPConnection(urlsplit(backend["target"]).netloc, timeout=20)
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
        reply = connection.getresponse()
        if reply.status != 200:
            return None
        for line in reply:
            if b'"content"' in line:
                last = time.time()
                first, tokens = first or last, tokens + 1
    except OSError:
        return None
    if first is None:
        return None
    wrong = float(os.environ.get("WRONG_BY", "1"))
    return {"request_start_time": begin, "time_to_first_token_ms": wrong * 1000 * (first - begin),
            "request_latency": wrong * (last - begin), "output_tokens": tokens}  # fmt: skip


def main() -> int:
    given = options(sys.argv[1:])
    with open(given["data"]["path"]) as file:
        prompts = [json.loads(line)["prompt"] for line in file]
    profile, draw = given["profile"], random.Random(given["seed"]["value"])
    rate = float(profile.get("rate", 0))
    with ThreadPoolExecutor(int(profile.get("streams", len(prompts)))) as pool:
        futures = []
        for prompt in prompts:
            futures.append(pool.submit(request, given["backend"], prompt))
            if rate:
                time.sleep(draw.expovariate(rate))
        rows = [future.result() for future in futures]
    answered = [row for row in rows if row]
    benchmark = {"metrics": {"time_to_first_token_ms": {}}, "requests": {"successful": answered}}
    with open(given["output"]["path"], "w") as file:
        json.dump({"benchmarks": [benchmark]}, file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
