"""Tools for the tests of dispatch and of the fronts, loaded like a user's own tools: AISP_TOOL_MODULES=front_tools."""

from __future__ import annotations

import ctypes
import math
import os
import threading
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from aisp_mcp.errors import Unavailable
from aisp_mcp.jobs.questions import Question
from aisp_mcp.process.run import run
from aisp_mcp.records import Params, Record
from aisp_mcp.server.context import Context
from aisp_mcp.server.registry import DESTROYS, MS, READS, RUNS, JobParams, JobSpec, Plan, ReadingParams, S, Wait, tool
from aisp_mcp.store.records.job import Job


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class EchoParams(Params):
    count: int = Field(ge=1, le=9, description="How many.")
    names: list[str] = Field(default_factory=list, max_length=3)
    ratio: float | None = Field(default=None, gt=0)
    loud: bool = False
    mode: Literal["plain", "fancy"] = "plain"
    colour: Colour = Colour.RED
    where: Path | None = None
    either: int | list[str] = 1


class Echo(Record):
    said: dict[str, Any]


@tool(cli="demo echo", effect=READS, cost=MS, next=("aisp_demo_numbers",), aliases={"aisp_demo_repeat": {}})
def aisp_demo_echo(p: EchoParams, ctx: Context) -> Echo:
    """Say the arguments as they arrived.

    A second paragraph that only the long help shows.
    """
    return Echo(said=p.model_dump(mode="json"))


class Empty(Params):
    pass


class Numbers(Record):
    good: float
    ratio: float
    series: list[float]
    nothing: float | None = None


@tool(cli="demo numbers", effect=READS, cost=MS)
def aisp_demo_numbers(p: Empty, ctx: Context) -> Numbers:
    """Numbers, some of which are not finite."""
    return Numbers(good=1.5, ratio=math.inf, series=[1.0, math.nan, -math.inf])


class BigParams(Params):
    items: int = Field(default=100, ge=0, le=100_000)
    text: int = Field(default=10, ge=0, le=1_000_000)


class Row(Record):
    name: str
    samples: list[int]
    log: str


class Big(Record):
    rows: list[Row]


@tool(cli="demo big", effect=READS, cost=MS)
def aisp_demo_big(p: BigParams, ctx: Context) -> Big:
    """A long answer."""
    return Big(rows=[Row(name=f"row {i}", samples=list(range(60)), log="x" * p.text) for i in range(p.items)])


@tool(cli="demo print", effect=READS, cost=MS)
def aisp_demo_print(p: Empty, ctx: Context) -> Echo:
    """Print where nothing may be printed."""
    print("stray words")
    os.write(1, b"stray bytes\n")
    os.system("echo stray child")
    return Echo(said={"printed": True})


@tool(cli="demo boom", effect=READS, cost=MS)
def aisp_demo_boom(p: Empty, ctx: Context) -> Echo:
    """A bug."""
    raise RuntimeError("secret detail https://errors.example/x")


@tool(cli="demo refuse", effect=DESTROYS, cost=MS, needs=("gpu", "network"))
def aisp_demo_refuse(p: Empty, ctx: Context) -> Echo:
    """A refusal with everything a refusal can have."""
    steps = [("aisp_demo_echo", {"count": 1}), ("aisp_demo_numbers", {})]
    raise Unavailable("NO_GPU", "There is no GPU.", "Put one in.", steps)


class HoldParams(Params):
    ready: Path = Field(description="Touched when the tool is busy.")


@tool(cli="demo hold", effect=READS, cost=S)
def aisp_demo_hold(p: HoldParams, ctx: Context) -> Echo:
    """Be busy for ten minutes and hear nothing."""
    p.ready.touch()
    threading.Event().wait(600)
    return Echo(said={})


class ParseParams(ReadingParams):
    pid_file: Path
    pipe: Path | None = None
    end: bool = False


@tool(cli="demo parse", effect=READS, cost=S)
def aisp_demo_parse(p: ParseParams, ctx: Context) -> Echo:
    """Hold the interpreter until somebody writes into the pipe, or end this process."""
    partial = p.pid_file.with_suffix(".part")
    partial.write_text(str(os.getpid()))
    partial.replace(p.pid_file)
    print("stray words", flush=True)
    if p.end:
        os._exit(9)
    if p.pipe is not None:
        libc = ctypes.PyDLL(None)  # its functions keep the interpreter's lock
        libc.close(libc.open(str(p.pipe).encode(), os.O_RDONLY))
    return Echo(said={"principal": ctx.principal})


class ProgramParams(Params):
    pid_file: Path = Field(description="Gets the program's process id.")


@tool(cli="demo program", effect=READS, cost=S)
def aisp_demo_program(p: ProgramParams, ctx: Context) -> Echo:
    """Run a program that takes ten minutes."""
    script = 'echo $$ > "$0.part"; mv "$0.part" "$0"; sleep 600'
    run(["sh", "-c", script, str(p.pid_file)], timeout_s=600)
    return Echo(said={})


class Judged(Record):
    passed: bool | None
    sentence: str
    verdict: str


class JudgeParams(Params):
    passed: bool | None = None


@tool(cli="demo judge", effect=READS, cost=MS, verdict=True)
def aisp_demo_judge(p: JudgeParams, ctx: Context) -> Judged:
    """A verdict."""
    verdict = {True: "faster", False: "slower", None: "inconclusive"}[p.passed]
    return Judged(passed=p.passed, sentence=f"The candidate is {verdict}.", verdict=verdict)


class CountParams(JobParams):
    steps: int = Field(default=3, ge=1, le=1000)
    gate: Path | None = Field(default=None, description="A named pipe: one byte is read before each step.")
    fail: bool = False


class Counted(Record):
    steps: int
    job: bool


def _estimate(p: CountParams, ctx: Context) -> Plan:
    if p.steps == 13:
        raise Unavailable("UNLUCKY", "Thirteen steps cannot be counted.", "Take another number.")
    return Plan(argv=[], timeout_s=p.timeout_s or 30, resources=[], estimate_s=0.1, details={"steps": p.steps})


@tool(cli="demo count", effect=RUNS, cost=S, job=JobSpec(timeout_s=30), estimate=_estimate)
def aisp_demo_count(p: CountParams, ctx: Context) -> Counted:
    """Count as a job, step by step."""
    if p.fail:
        raise Unavailable("NOT_TODAY", "No counting today.", "Come back tomorrow.")
    pipe = p.gate.open("rb", buffering=0) if p.gate else None
    for step in range(p.steps):
        if pipe is not None:
            pipe.read(1)
        ctx.progress(step + 1, p.steps, f"step {step + 1}")
    return Counted(steps=p.steps, job=ctx.job_id is not None)


class WaitParams(Params):
    job_ids: list[str] = Field(min_length=1)
    timeout_s: float = Field(default=45, ge=0, le=45)
    until: Literal["any", "all"] = "all"


class States(Record):
    states: list[str]


@tool(cli="demo wait", effect=READS, cost=S)
def aisp_demo_wait(p: WaitParams, ctx: Context) -> States | Wait:
    """Wait for jobs as a tool does that must not hold a thread."""

    def finish(jobs: list[Job]) -> States:
        return States(states=[job.state.value for job in jobs])

    return Wait(tuple(p.job_ids), p.timeout_s, finish, p.until)


class AskParams(JobParams):
    names: list[str] = Field(min_length=1)


@tool(cli="demo ask", effect=RUNS, cost=S, job=JobSpec(timeout_s=30))
def aisp_demo_ask(p: AskParams, ctx: Context) -> Echo:
    """Ask the user for some values, where somebody can."""
    form = {name: Question(message=f"Which {name}?", fields={"value": {"type": "string"}}) for name in p.names}
    replies = ctx.ask(form, 20) or {}
    return Echo(said={name: reply.content and reply.content["value"] for name, reply in replies.items()})
