"""Make a profile: run a command under a profiler as a job, keep scrubbed files, answer with the summary."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from aisp_mcp.context import Context
from aisp_mcp.errors import Unavailable, UsageError
from aisp_mcp.model.base import Record
from aisp_mcp.model.profile import CompileProfile, MemoryProfile, Source
from aisp_mcp.profilers.digest import Found, Idle, NcuSummary, Summary
from aisp_mcp.registry import MIN, RUNS, JobParams, JobSpec, Plan, tool

Command = Annotated[list[str], Field(max_length=256, description="Argument list, as for the shell but split.")]


class Recording(JobParams):
    command: Command = Field(default_factory=list, description="Program and arguments, as a list.")
    report: str | None = Field(default=None, description="Instead: a report of this profiler to convert.")


def _folder(ctx: Context) -> Path:
    """The job's own folder; a fresh one when called without a job."""
    import secrets

    folder = ctx.run_dir or ctx.settings.home / "profiles" / secrets.token_hex(8)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _program(name: str, ctx: Context) -> str:
    from aisp_mcp.profilers import find

    return find.program(name, ctx.settings.home / "tools")


def _one(p: Recording) -> None:
    """Exactly one of command and report."""
    from aisp_mcp.profilers import record

    if bool(p.command) == (p.report is not None):
        raise UsageError("NO_COMMAND", "Give either a command or a report.", "command: ['python', 'train.py'].")
    if p.report is not None:
        record.check_report(p.report)
    else:
        record.check_command(p.command)


class NsysRecording(Recording):
    preset: Literal["light", "full"] = Field(default="light", description="full adds OS runtime, libraries, sampling.")
    capture: str | None = Field(default=None, max_length=200, description="cudaProfilerApi, or an NVTX range's name.")


class NsysRecorded(Record):
    """The scrubbed export, and what it says."""

    database: str
    summary: Summary


def _nsys_plan(p: NsysRecording, ctx: Context) -> Plan:
    from aisp_mcp.profilers import commands

    _one(p)
    program = _program("nsys", ctx)
    if p.report is not None:
        return Plan(argv=[], timeout_s=p.timeout_s or 900, resources=[])
    argv = commands.nsys(program, p.command, Path("report.nsys-rep"), p.preset, p.capture)
    return Plan(argv=[], timeout_s=p.timeout_s or 900, resources=_locks(), details={"profiler": argv})


def _locks() -> list[str]:
    from aisp_mcp.system.nvml import gpu_uuids

    return [f"gpu:{uuid}" for uuid in gpu_uuids()] or ["cpu"]


@tool(
    cli="profile nsys", effect=RUNS, cost=MIN, job=JobSpec(timeout_s=900, measures=True), needs=("nsys",),
    next=("aisp_nsys_summary", "aisp_compare_nsys"), estimate=_nsys_plan, chart="recording",
)  # fmt: skip
def aisp_profile_nsys(p: NsysRecording, ctx: Context) -> NsysRecorded:
    """Record a command with Nsight Systems and summarise it; environment values are scrubbed from what is kept."""
    from aisp_mcp.profilers import digest, load, record, timeline

    _one(p)
    folder, program = _folder(ctx), _program("nsys", ctx)
    if p.report is not None:
        path = record.export_nsys(program, Path(p.report).expanduser(), folder)
    else:
        path = record.nsys(program, p.command, folder, p.preset, p.capture, _left(p, 900))
    trace = load.load_trace(path)
    shown, steady = timeline.profile(trace, "all"), timeline.profile(trace, "steady")
    return NsysRecorded(database=str(path), summary=digest.summary(shown, "overview", 10, steady))


def _left(p: JobParams, default: float) -> float:
    """The profiler ends a little before the job would be killed, so that its report can still be read."""
    return (p.timeout_s or default) * 0.8


class NcuRecording(Recording):
    set: Literal["basic", "detailed", "full", "roofline"] = "detailed"
    kernel: str | None = Field(default=None, max_length=500, description="Regular expression on kernel names.")
    launch_skip: int = Field(default=0, ge=0, le=1_000_000)
    launch_count: int = Field(default=10, ge=1, le=1000)


class NcuRecorded(Record):
    """The report, its two pages, and what they say."""

    files: list[str] = Field(description="report.raw.csv and report.details.csv, for aisp_ncu_summary.")
    summary: NcuSummary


def _ncu_plan(p: NcuRecording, ctx: Context) -> Plan:
    from aisp_mcp.profilers import commands

    _one(p)
    if p.report is not None:
        return Plan(argv=[], timeout_s=p.timeout_s or 1800, resources=[])
    program = _program("ncu", ctx)
    argv = commands.ncu(program, p.command, Path("report.ncu-rep"), p.set, p.kernel, p.launch_skip, p.launch_count)
    return Plan(argv=[], timeout_s=p.timeout_s or 1800, resources=_locks(), details={"profiler": argv})


@tool(
    cli="profile ncu", effect=RUNS, cost=MIN, job=JobSpec(timeout_s=1800, measures=True), needs=("ncu",),
    next=("aisp_ncu_summary", "aisp_profile_roofline"), estimate=_ncu_plan,
)  # fmt: skip
def aisp_profile_ncu(p: NcuRecording, ctx: Context) -> NcuRecorded:
    """Record kernels' hardware counters with Nsight Compute, clocks untouched, and say what limits each."""
    from aisp_mcp.profilers import digest, ncu, record

    _one(p)
    folder = _folder(ctx)
    if p.report is not None:
        found = record.read_ncu(_maybe("ncu", ctx), Path(p.report).expanduser(), folder)
        return NcuRecorded(files=_files(folder), summary=digest.ncu_summary(found, None, 10))
    options = (p.set, p.kernel, p.launch_skip, p.launch_count)
    raw, details = record.ncu(_program("ncu", ctx), p.command, folder, *options, _left(p, 1800))
    return NcuRecorded(files=_files(folder), summary=digest.ncu_summary(ncu.read(raw, details), None, 10))


def _maybe(name: str, ctx: Context) -> str | None:
    """The program, or None where another way may do."""
    try:
        return _program(name, ctx)
    except Unavailable:
        return None


def _files(folder: Path) -> list[str]:
    """What was kept."""
    return sorted(str(path) for path in folder.glob("report.*"))


class ScriptParams(JobParams):
    script: str | None = Field(default=None, max_length=4096, description="Python file to run.")
    args: list[str] = Field(default_factory=list, max_length=256)
    python: str | None = Field(default=None, max_length=4096, description="Interpreter that has torch; default: ours.")

    @property
    def interpreter(self) -> str:
        return self.python or sys.executable


class TorchRecording(ScriptParams):
    script: str = Field(max_length=4096, description="Python file to run; record_function('step') marks iterations.")
    mode: Literal["full", "memory", "flops", "modules", "stacks"] = Field(
        default="full", description="stacks: py-spy instead of torch.profiler."
    )


class TorchRecorded(Record):
    """Operators by own time; times in microseconds, host and device. trace: Kineto (or speedscope for stacks)."""

    trace: str
    source: Source | None = None
    cuda: bool = False
    operators: list[dict[str, Any]] = Field(default_factory=list)
    breakdown: list[Idle] = Field(default_factory=list)
    compile: CompileProfile | None = None
    insights: list[Found] = Field(default_factory=list)


@tool(
    cli="profile torch", effect=RUNS, cost=MIN, job=JobSpec(timeout_s=900, measures=True), needs=("torch",),
    next=("aisp_profile_hta", "aisp_profile_flame"), chart="timeline",
)  # fmt: skip
def aisp_profile_torch(p: TorchRecording, ctx: Context) -> TorchRecorded:
    """Run a script under torch.profiler in a child: operators, kernels, memory, FLOPs, compile facts, trace file."""
    from aisp_mcp.profilers import digest, load, record
    from aisp_mcp.profilers.insights.engine import insights

    folder = _folder(ctx)
    if p.mode == "stacks":
        command = [p.interpreter, p.script, *p.args]
        return TorchRecorded(trace=str(record.py_spy(_program("py-spy", ctx), command, folder, _left(p, 900))))
    trace, facts = record.torch(p.script, p.args, folder, p.mode, p.interpreter, _left(p, 900))
    compiled = record.compiled(facts)
    profile = load.load(trace, "steady").model_copy(update={"compile": compiled})
    return TorchRecorded(
        trace=str(trace),
        source=profile.source,
        cuda=bool(facts["cuda"]),
        operators=record.operators(folder, 15),
        breakdown=digest.breakdowns(profile),
        compile=compiled,
        insights=[digest.brief(i) for i in insights(profile).found[:6]],
    )


class MemoryRecording(ScriptParams):
    snapshot: str | None = Field(default=None, max_length=4096, description="Instead: a snapshot as JSON (also .gz).")


class MemoryRecorded(Record):
    """Per device; without a GPU, the host's tensors."""

    snapshot: str
    source: Source
    host: bool = Field(description="The history is of host memory.")
    memory: list[MemoryProfile]
    insights: list[Found]


@tool(
    cli="profile memory", effect=RUNS, cost=MIN, job=JobSpec(timeout_s=900),
    next=("aisp_profile_torch",),
)  # fmt: skip
def aisp_profile_memory(p: MemoryRecording, ctx: Context) -> MemoryRecorded:
    """Show a script's or a snapshot's memory: timeline, peak with stacks, growth per step, unused reservation."""
    from aisp_mcp.profilers import digest, record, snapshot
    from aisp_mcp.profilers.insights.engine import insights

    if (p.script is None) == (p.snapshot is None):
        raise UsageError(
            "NO_COMMAND", "Give either a script or a snapshot.", "script: 'train.py', or snapshot: 'memory.json'."
        )
    path, host = Path(p.snapshot or ""), False
    if p.script is not None:
        folder = _folder(ctx)
        _, facts = record.torch(p.script, p.args, folder, "memory", p.interpreter, _left(p, 900))
        path, host = folder / "memory.json", not facts["cuda"]
    profile = snapshot.read(path)
    shown = [
        m.model_copy(update={"timeline": m.timeline[:: max(1, len(m.timeline) // 50)]}) for m in profile.memory[:8]
    ]
    found = [digest.brief(i) for i in insights(profile).found[:6]]
    return MemoryRecorded(snapshot=str(path), source=profile.source, host=host, memory=shown, insights=found)
