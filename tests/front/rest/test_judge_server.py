"""`aisp serve-judge`: submissions of many clients, their order, and who measures when."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import signal
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from http_support import Served
from waiting import until


class Pool:
    """A judge server with one worker and room for three that wait, and a client of it."""

    def __init__(self, folder: Path, workers: int = 1) -> None:
        words = ("aisp_mcp.front.cli.main", "serve-judge", "--workers", str(workers), "--queue", "3")
        self.served = Served(command=words)
        headers = {"Authorization": f"Bearer {self.served.token}"}
        self.web = httpx2.Client(base_url=f"http://127.0.0.1:{self.served.port}/api", headers=headers, timeout=50)
        self.journal, self.gate = folder / "journal", folder / "gate"

    def submit(self, text: str, **more: Any) -> httpx2.Response:
        args = {"candidate": "c.py", "gate": str(self.gate), "journal": str(self.journal)}
        return self.web.post("/judge", json={"tool": "aisp_pool_weigh", "files": {"c.py": text}, "args": args, **more})

    def started(self) -> list[list[str]]:
        return [line.split() for line in self.journal.read_text().splitlines()] if self.journal.exists() else []

    def active(self) -> int:
        return sum(job["state"] in ("queued", "running") for job in self.web.get("/jobs").json()["rows"])

    def answer(self, response: httpx2.Response) -> dict[str, Any]:
        job = response.json()["job"]["job_id"]
        until(lambda: self.web.get(f"/judge/{job}").json()["status"] not in ("queued", "running"))
        answered: dict[str, Any] = self.web.get(f"/judge/{job}").json()
        return answered


@pytest.fixture
def pool(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pool]:
    monkeypatch.setenv("AISP_TOOL_MODULES", "pool_tools")
    made = Pool(tmp_path)
    with contextlib.closing(made.web):
        yield made
        made.gate.touch()
        until(lambda: made.active() == 0)
    made.served.stop()


def test_submissions_wait_in_order_of_priority_and_are_judged_once(pool: Pool) -> None:
    first = pool.submit("first")
    until(lambda: len(pool.started()) == 1)
    low, high, mid = (pool.submit(name, priority=number) for name, number in (("low", -1), ("high", 5), ("mid", 0)))
    assert [response.status_code for response in (first, low, high, mid)] == [202] * 4
    assert [response.headers["Aisp-Position"] for response in (low, high)] == ["0", "0"]
    full = pool.submit("one too many")
    assert (full.status_code, full.json()["error"]["code"]) == (503, "POOL_FULL")
    assert int(full.headers["Retry-After"]) >= 1
    again = pool.submit("low", priority=-1)
    assert (again.status_code, again.json()["job"]["job_id"]) == (202, low.json()["job"]["job_id"])
    assert again.headers["Aisp-Position"] == "2"
    pool.gate.touch()
    answers = [pool.answer(response)["result"] for response in (first, low, high, mid)]
    assert [answer["text"] for answer in answers] == ["first", "low", "high", "mid"]
    assert [text for text, *_ in pool.started()] == ["first", "high", "mid", "low"]
    assert pool.submit("low", priority=-1).json()["result"]["text"] == "low"  # its answer, without a second judgement
    windows = sorted(answer["lease"]["windows"][0] for answer in answers)
    assert all(earlier[1] <= later[0] for earlier, later in itertools.pairwise(windows))
    assert len({answer["lease"]["worker"] for answer in answers}) == 4
    pool.journal = Path("/dev/full")  # what the job writes finds no room: not judged, so the same is a new attempt
    for _ in range(2):
        late = pool.submit("late")
        assert (late.status_code, pool.answer(late)["error"]["code"]) == (202, "DISK_FULL")


@pytest.mark.parametrize(("killed", "code"), [(1, "CRASHED"), (2, "LOST")])
def test_a_lost_worker_is_replaced_once(pool: Pool, killed: int, code: str) -> None:
    """killed: the worker process, or its supervisor."""
    response = pool.submit("fragile")
    for count in (1, 2):
        until(lambda count=count: len(pool.started()) == count)
        os.kill(int(pool.started()[-1][killed]), signal.SIGKILL)
    answer = pool.answer(response)
    assert answer["error"]["code"] == code
    assert [text for text, *_ in pool.started()] == ["fragile", "fragile"]
    pool.gate.touch()
    if code == "LOST":  # nothing was judged: a new attempt
        assert pool.answer(pool.submit("fragile"))["result"]["text"] == "fragile"


def tarball(name: str, kind: bytes = tarfile.REGTYPE) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        member = tarfile.TarInfo(name)
        member.type, member.linkname, member.size = kind, "/etc/passwd", 0 if kind == tarfile.SYMTYPE else 6
        archive.addfile(member, io.BytesIO(b"packed"))
    return buffer.getvalue()


def test_a_tarball_is_a_submission_and_bad_ones_are_refused_in_a_sentence(pool: Pool) -> None:
    pool.gate.touch()
    query = {"tool": "aisp_pool_weigh", "args": json.dumps({"candidate": "sub/c.py"}), "key": "k"}

    def post(data: bytes, **changed: str) -> httpx2.Response:
        return pool.web.post("/judge", params={**query, **changed}, content=data)

    assert pool.answer(post(tarball("sub/c.py")))["result"]["text"] == "packed"
    assert post(tarball("sub/d.py")).json()["error"]["code"] == "KEY_REUSED"
    cases = {
        "name": post(tarball("../c.py")),
        "newline": post(tarball("a\nb")),
        "link": post(tarball("c.py", tarfile.SYMTYPE)),
        "no tarball": post(b"\x1f\x8bjunk"),
        "priority": post(tarball("c.py"), priority="11"),
        "tool": post(tarball("c.py"), tool="aisp_job_list"),
        "key": post(tarball("c.py"), key="a\nb"),
    }
    for response in cases.values():
        assert (response.status_code, response.json()["error"]["code"]) == (422, "BAD_SUBMISSION")
        assert "\n" not in response.json()["error"]["message"]
    large = pool.web.build_request("POST", "/judge", params=query, content=iter([bytes(1 << 20)] * 40))
    assert pool.web.send(large).status_code == 413
