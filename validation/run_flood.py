"""A judge server under more than it can take: many submissions at once, huge ones, and odd names. Not a test.

    python validation/run_flood.py [--submissions 10000] [--queue 50] [--workers 2] [--out FILE]

Every submission is a connection of its own, and all are opened at once. Prints one JSON document.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import http.client
import json
import os
import sqlite3
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "front")]

import httpx2  # noqa: E402
from http_support import Served  # noqa: E402

GIGABYTE, CHUNK = 10**9, 1 << 20
PATIENCE_S = 600.0


def main() -> int:
    """Return 0 if every submission got an answer, and every ticket a result."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    for name, default in (("submissions", 10_000), ("queue", 50), ("workers", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--out")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="aisp-flood-") as folder:
        os.environ.update(
            AISP_HOME=f"{folder}/home",
            AISP_TOOL_MODULES="pool_tools",
            PYTHONPATH=os.pathsep.join([str(ROOT / "tests" / "front"), str(ROOT)]),
        )
        words = ("--workers", str(options.workers), "--queue", str(options.queue))
        served = Served(command=("aisp_mcp.front.cli.main", "serve-judge", *words))
        said = list[str]()
        assert served.process.stderr
        reader = threading.Thread(target=said.extend, args=(served.process.stderr,))  # a full pipe would hold it up
        reader.start()
        try:
            record = {
                "one gigabyte, announced": huge(served, announced=True),
                "one gigabyte, in chunks": huge(served, announced=False),
                "a name with a newline": named(served, "a\nb.py"),
                "at once": asyncio.run(flood(served, options.submissions)),
            }
            status = Path(f"/proc/{served.process.pid}/status").read_text()
            record["server"] = {
                "peak_mb": int(status.partition("VmHWM:")[2].split()[0]) // 1000,
                "judged": judged(Path(folder) / "home"),
            }
        finally:
            served.process.terminate()
            reader.join()
            served.process.wait()
        record["server"]["log"] = Counter(line.rstrip() for line in said).most_common(20)
    text = json.dumps(record, indent=1)
    if options.out:
        Path(options.out).write_text(text + "\n")
    print(text)
    found = record["at once"]
    return int(found["no_answer"] + found["tickets_without_result"] > 0)


def body(text: str, name: str = "c.py") -> dict[str, Any]:
    return {"tool": "aisp_pool_weigh", "files": {name: text}, "args": {"candidate": name}}


def judged(home: Path) -> dict[str, int]:
    """Jobs in the store, those begun more than once, and submissions that have more than one job."""
    with contextlib.closing(sqlite3.connect(home / "aisp.db")) as db:
        rows = db.execute("SELECT params, spawns FROM jobs").fetchall()
    return {
        "jobs": len(rows),
        "begun_twice": sum(spawns > 1 for _, spawns in rows),
        "submissions_with_two_jobs": len(rows) - len({params for params, _ in rows}),
    }


async def flood(served: Served, count: int) -> dict[str, Any]:
    """All at once; then every ticket is followed to its result."""
    answers, tickets, problems = Counter[str](), list[str](), Counter[str]()
    headers = {"Authorization": f"Bearer {served.token}"}
    base = f"http://127.0.0.1:{served.port}/api"
    async with httpx2.AsyncClient(base_url=base, headers=headers, timeout=PATIENCE_S) as web:

        async def one(number: int) -> None:
            try:
                status, head, text = await posted(served, body(f"n{number}"))
            except (OSError, ValueError) as error:
                problems[f"{type(error).__name__}: {error}"] += 1
                return
            retry = " with Retry-After" if "retry-after:" in head else ""
            if "application/json" not in head:
                answers[f"{status} {text[:80]!r}{retry}"] += 1
                return
            told = json.loads(text)
            code = (told.get("error") or {}).get("code", told["status"])
            answers[f"{status} {code}{retry}"] += 1
            if status == 202:
                tickets.append(told["job"]["job_id"])

        began = time.monotonic()
        await asyncio.gather(*(one(number) for number in range(count)))
        seconds = time.monotonic() - began
        results = Counter[str]()
        while tickets and time.monotonic() - began < PATIENCE_S:
            for ticket in list(tickets):
                answer = await web.get(f"/judge/{ticket}")
                if answer.status_code in (429, 503):
                    await asyncio.sleep(float(answer.headers["Retry-After"]))
                    continue
                if (told := answer.json())["status"] not in ("queued", "running"):
                    results[told["status"]] += 1
                    tickets.remove(ticket)
            await asyncio.sleep(0.5)
    return {
        "submissions": count,
        "answers": dict(answers),
        "no_answer": sum(problems.values()),
        "problems": dict(problems),
        "seconds": round(seconds, 1),
        "results": dict(results),
        "tickets_without_result": len(tickets),
    }


async def posted(served: Served, content: dict[str, Any]) -> tuple[int, str, str]:
    """Status, head in lower case and body of one submission; a pool of connections would send them one by one."""
    data = json.dumps(content).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    try:
        head = f"POST /api/judge HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\nAuthorization: Bearer {served.token}\r\n"
        about = f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\nConnection: close\r\n\r\n"
        writer.write((head + about).encode() + data)
        answer, _, text = (await reader.read()).decode().partition("\r\n\r\n")
        if not answer:
            raise ValueError("closed without an answer")
        return int(answer.split()[1]), answer.lower(), text
    finally:
        writer.close()


def huge(served: Served, announced: bool) -> dict[str, Any]:
    """A body of 1 GB: the answer, and how much of it was sent until then."""
    sent = 0

    def chunks() -> Iterator[bytes]:
        nonlocal sent
        for _ in range(GIGABYTE // CHUNK):
            sent += CHUNK
            yield bytes(CHUNK)

    headers = {"Authorization": f"Bearer {served.token}", "Content-Type": "application/x-tar"}
    if announced:
        headers["Content-Length"] = str(GIGABYTE // CHUNK * CHUNK)
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=60)
    began = time.monotonic()
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the answer is there all the same
        connection.request("POST", "/api/judge", chunks(), headers, encode_chunked=not announced)
    answer = connection.getresponse()
    told = json.loads(answer.read())
    return {
        "status": answer.status,
        "sentence": told["error"]["message"],
        "sent_mb": round(sent / 1e6),
        "seconds": round(time.monotonic() - began, 2),
    }


def named(served: Served, name: str) -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {served.token}"}
    answer = httpx2.post(f"http://127.0.0.1:{served.port}/api/judge", json=body("x", name), headers=headers, timeout=60)
    return {"status": answer.status_code, "sentence": answer.json()["error"]["message"]}


if __name__ == "__main__":
    sys.exit(main())
