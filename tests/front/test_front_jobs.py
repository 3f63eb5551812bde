"""Long work over the fronts: the answer if it comes in time, else a ticket; progress; and letting go."""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from front_support import ERAS, Cli, Connect, Raw
from waiting import PATIENCE_S

from aisp_mcp.envelope import Envelope, Progress
from aisp_mcp.server import dispatch
from aisp_mcp.server.context import Context
from aisp_mcp.server.dispatch.pending import JobPending
from aisp_mcp.settings import Settings

BOTH = pytest.mark.parametrize("era", ERAS)
PLACES = pytest.mark.parametrize(("era", "over"), [("legacy", "memory"), ("auto", "memory"), ("auto", "stdio")])


class Gate:
    """A named pipe that a counting job reads one byte from before each step."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = str(path)
        # For reading too: opening does not wait for the job, and the job's open does not wait for us.
        self._fd = os.open(path, os.O_RDWR)

    def open(self, steps: int = 1) -> None:
        os.write(self._fd, b"x" * steps)

    def close(self) -> None:
        os.close(self._fd)


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    made = Gate(tmp_path / "gate")
    yield made
    made.open(1000)
    made.close()


def ended(job_id: str) -> Envelope:
    """Wait for a job by way of the store alone."""
    ctx = Context(settings=Settings.from_env())
    return dispatch.follow("aisp_demo_count", JobPending(ctx, job_id, 30), ctx, 30)


@BOTH
@pytest.mark.anyio
async def test_the_answer_itself_when_it_comes_in_time(connect: Connect, era: str) -> None:
    async with connect(era) as client:
        result = await client.call_tool("aisp_demo_count", {"steps": 2})
    data = result.structured_content
    assert data["status"] == "ok"
    assert data["result"] == {"steps": 2, "job": True}
    assert data["job"]["state"] == "succeeded"


@BOTH
@pytest.mark.anyio
async def test_a_ticket_when_it_does_not(connect: Connect, era: str, gate: Gate) -> None:
    async with connect(era) as client:
        result = await client.call_tool("aisp_demo_count", {"steps": 1, "gate": gate.path, "wait_s": 0})
        data = result.structured_content
        assert result.is_error is False
        assert data["status"] in ("queued", "running")
        assert "result" not in data
        ids = [data["job"]["job_id"]]
        early = await client.call_tool("aisp_demo_wait", {"job_ids": ids, "timeout_s": 0.1})
        assert early.structured_content["result"]["states"][0] in ("queued", "running")
        gate.open()
        late = await client.call_tool("aisp_demo_wait", {"job_ids": ids})
        assert late.structured_content["result"] == {"states": ["succeeded"]}


@pytest.mark.anyio
async def test_waiting_for_any_of_several(connect: Connect, gate: Gate) -> None:
    async with connect() as client:
        answers = [
            await client.call_tool("aisp_demo_count", {"steps": 1, "wait_s": 0, **extra})
            for extra in ({"gate": gate.path}, {})
        ]
        ids = [answer.structured_content["job"]["job_id"] for answer in answers]
        result = await client.call_tool("aisp_demo_wait", {"job_ids": ids, "until": "any"})
        assert result.structured_content["result"]["states"][1] == "succeeded"
        assert result.structured_content["result"]["states"][0] in ("queued", "running")


@pytest.mark.anyio
async def test_an_unknown_job_is_an_answer_not_a_failure_of_the_server(connect: Connect) -> None:
    async with connect() as client:
        result = await client.call_tool("aisp_demo_wait", {"job_ids": ["j_" + "x" * 22]})
    assert result.is_error is True
    assert result.structured_content["error"]["code"] == "UNKNOWN_JOB"


@pytest.mark.anyio
async def test_an_error_of_a_job_is_the_answer(connect: Connect) -> None:
    async with connect() as client:
        result = await client.call_tool("aisp_demo_count", {"fail": True})
    assert result.is_error is True
    assert result.structured_content["error"]["code"] == "NOT_TODAY"
    assert result.structured_content["error"]["hint"] == "Come back tomorrow."


@PLACES
@pytest.mark.anyio
async def test_progress_only_ever_grows(connect: Connect, era: str, over: str, gate: Gate) -> None:
    told: list[tuple[float, float | None, str | None]] = []
    fresh = anyio.Event()

    async def tell(progress: float, total: float | None, message: str | None) -> None:
        nonlocal fresh
        told.append((progress, total, message))
        fresh.set()
        fresh = anyio.Event()

    async def let_through() -> None:
        # The first step is always told. Later ones may be left out when they are quick, so nobody waits for them long.
        gate.open()
        await fresh.wait()
        for _ in range(5):
            told_of = fresh
            gate.open()
            with anyio.move_on_after(1):
                await told_of.wait()

    async with connect(era, over) as client, anyio.create_task_group() as tasks:
        tasks.start_soon(let_through)
        arguments = {"steps": 6, "gate": gate.path, "wait_s": 40}
        result = await client.call_tool("aisp_demo_count", arguments, progress_callback=tell)
    assert result.structured_content["status"] == "ok"
    numbers = [number for number, _, _ in told]
    assert len(numbers) >= 2
    assert all(later > earlier for earlier, later in itertools.pairwise(numbers))
    assert all(total == 6 for _, total, _ in told)
    assert told[-1][2] is not None
    assert told[-1][2].startswith("step ")


class Told:
    """Stands in for a request: keeps what is reported."""

    def __init__(self) -> None:
        self.session = self
        self.numbers: list[float] = []

    async def report_progress(self, progress: float, total: float | None, message: str | None) -> None:
        self.numbers.append(progress)


@pytest.mark.anyio
async def test_new_words_at_the_same_count_are_told_with_a_greater_number() -> None:
    from aisp_mcp.front.mcp.server import ProgressReporter

    request: Any = Told()
    reporter = ProgressReporter(request)
    for done, message in ((0, "a"), (0, "a"), (0, "b"), (2, "c"), (1, "d"), (1, "d"), (3, "d")):
        await reporter.report(Progress(done=done, message=message))
    await reporter.report(None)
    assert request.numbers == [0, 0.001, 2, 2.001, 3]


@PLACES
@pytest.mark.anyio
async def test_letting_go_of_a_call_leaves_its_job_running(connect: Connect, era: str, over: str, gate: Gate) -> None:
    async with connect(era, over) as client:
        with anyio.CancelScope() as scope:

            async def tell(progress: float, total: float | None, message: str | None) -> None:
                scope.cancel()

            gate.open()
            arguments = {"steps": 2, "gate": gate.path, "wait_s": 40}
            await client.call_tool("aisp_demo_count", arguments, progress_callback=tell)
        assert scope.cancelled_caught
        assert (await client.call_tool("aisp_demo_echo", {"count": 1})).is_error is False
        [row], _ = Context(settings=Settings.from_env()).store.list_jobs()
        gate.open()
        assert (await anyio.to_thread.run_sync(ended, row.id)).result == {"steps": 2, "job": True}


def test_the_end_of_the_server_leaves_jobs_running(raw: Raw, gate: Gate) -> None:
    raw.handshake()
    raw.call(1, "aisp_demo_count", {"steps": 1, "gate": gate.path, "wait_s": 0})
    job_id = raw.read()["result"]["structuredContent"]["job"]["job_id"]
    assert raw.process.stdin is not None
    raw.process.stdin.close()
    raw.process.wait(timeout=PATIENCE_S)
    gate.open()
    assert ended(job_id).result == {"steps": 1, "job": True}


def test_the_command_line_follows_a_job_to_its_end(cli: Cli) -> None:
    done = cli("demo", "count", "3")
    assert done.returncode == 0, done.stderr
    assert re.search(r"steps\s+3", done.stdout)
    assert json.loads(cli("demo", "count", "3", "--json").stdout)["result"] == {"steps": 3, "job": True}


def test_the_command_line_takes_a_ticket_when_asked(cli: Cli, gate: Gate) -> None:
    """Its pipes are read to their end while the job still runs: the job must not have inherited them."""
    argv = ["demo", "count", "1", "--gate", gate.path, "--wait-s", "0"]
    done = cli(*argv, "--json")
    human = cli(*argv)
    assert (done.returncode, human.returncode) == (0, 0)
    data = json.loads(done.stdout)
    assert data["status"] in ("queued", "running")
    assert re.search(r"Job j_\S+ is (queued|running)", human.stdout)
    gate.open(2)
    assert ended(data["job"]["job_id"]).status.value == "ok"


def test_the_command_line_reports_a_failed_job(cli: Cli) -> None:
    done = cli("demo", "count", "--fail")
    assert done.returncode == 1
    assert "error NOT_TODAY: No counting today." in done.stderr
