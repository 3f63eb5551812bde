"""Make a profile: run a command under a profiler as a job, store scrubbed files, answer with the summary."""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from aisp_mcp.errors import Unavailable, UsageError
from aisp_mcp.profile.digest import Found, Idle, NcuSummary, Summary
from aisp_mcp.profile.recording.commands import LaunchSelection, TorchMode
from aisp_mcp.profile.recording.cost import CostPolicy, RecordingCost
from aisp_mcp.profile.recording.ran import Ran, RoleName
from aisp_mcp.profile.records import CompileProfile, MemoryProfile, Profile, Source, Statement
from aisp_mcp.records import Record
from aisp_mcp.server.context import Context
from aisp_mcp.server.registry import MIN, RUNS, JobParams, JobSpec, Plan, tool
from aisp_mcp.suites.records import BenchRoots

if TYPE_CHECKING:
    from aisp_mcp.profile.recording.target_program import Subject

TargetName = Annotated[str | None, Field(max_length=200, description="Or a benchmark.")]
Command = Annotated[list[str], Field(max_length=256, description="Argument list, as for the shell but split.")]


Cost = Annotated[CostPolicy, Field(description="Also run unrecorded.")]


class Recording(JobParams):
    command: Command = Field(default_factory=list, description="Program and arguments.")
    profile: str | None = Field(default=None, description="Or a report.")
    target: TargetName = None
    side: RoleName = "candidate"
    bench_root: BenchRoots = None
    cost: Cost = "auto"


def _folder(ctx: Context) -> Path:
    """The job's own folder; a new one if called without a job."""
    import secrets

    from aisp_mcp.store.private import make_private

    make_private(ctx.settings.home)
    folder = ctx.run_dir or ctx.settings.home / "profiles" / secrets.token_hex(8)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _program(name: str, ctx: Context) -> str:
    from aisp_mcp.profile.recording import find

    return find.program(name, ctx.settings.home / "tools")


def _source(p: Recording, ctx: Context) -> Subject | None:
    """Exactly one of command, report and target, which is looked up. Refuses commands that cannot start."""
    from aisp_mcp.profile.recording import record

    if bool(p.command) + (p.profile is not None) + (p.target is not None) != 1:
        hint = "command: ['python', 'train.py'], or target: 'ch07:row_sum'."
        raise UsageError("NO_COMMAND", "Give one of command, target and report.", hint)
    if p.profile is not None:
        record.check_report(p.profile)
    elif p.command:
        record.check_command(p.command)
    return _subject(p.target, p.side, p.bench_root, ctx)


def _subject(target: str | None, role: RoleName, bench_root: list[str] | None, ctx: Context) -> Subject | None:
    from aisp_mcp.profile.recording import target_program

    return target_program.find(ctx.bench_roots(bench_root), target, role) if target is not None else None


class NsysRecording(Recording):
    preset: Literal["light", "full"] = Field(default="light", description="full adds OS runtime, sampling.")
    capture: str | None = Field(default=None, max_length=200, description="cudaProfilerApi, or an NVTX range.")
    keep_report: bool = Field(default=False, description="It holds the environment.")


class NsysRecorded(Record):
    """The scrubbed export, and its summary."""

    database: str
    open_with: list[str] = Field(default_factory=list, description="Commands that show the raw report.")
    ran: Ran | None = None
    cost: RecordingCost | None = None
    summary: Summary


def _nsys_plan(p: NsysRecording, ctx: Context) -> Plan:
    from aisp_mcp.profile.recording import commands
    from aisp_mcp.system.gpu import nvml

    _source(p, ctx)
    program = _program("nsys", ctx)
    if p.profile is not None:
        return Plan(argv=[], timeout_s=p.timeout_s or 900, resources=[])
    command = p.command or ["python", "target.py"]
    argv = commands.nsys(program, command, Path("report.nsys-rep"), p.preset, p.capture)
    return Plan(argv=[], timeout_s=p.timeout_s or 900, resources=nvml.measuring_locks(), details={"profiler": argv})


@tool(
    cli="profile nsys", effect=RUNS, cost=MIN, job=JobSpec(timeout_s=900, measures=True), needs=("nsys",),
    next=("aisp_nsys_summary", "aisp_compare_nsys"), estimate=_nsys_plan, chart="recording",
    listed="default",
)  # fmt: skip
def aisp_profile_nsys(p: NsysRecording, ctx: Context) -> NsysRecorded:
    """Record a command with Nsight Systems and summarise it; environment values are scrubbed from the stored files."""
    from aisp_mcp.profile import digest, load
    from aisp_mcp.profile.recording import commands, record, target_program
    from aisp_mcp.profile.timeline import summarize

    subject, ran = _source(p, ctx), None
    folder, program = _folder(ctx), _program("nsys", ctx)
    if p.profile is not None:
        path = record.export_nsys(program, Path(p.profile).expanduser(), folder)
    elif subject is not None:
        path, ran = target_program.nsys(subject, program, folder, p.preset, p.capture, _left(p, 900), p.keep_report)
    else:
        path = record.nsys(program, p.command, folder, p.preset, p.capture, _left(p, 900), keep=p.keep_report)
    trace = load.load_trace(path)
    shown, steady = summarize.profile(trace, "all"), summarize.profile(trace, "steady")
    shows = commands.viewer_commands(folder, p.profile)
    summary, spent = digest.summary(shown, "overview", 10, steady), _nsys_cost(p, subject, program, folder)
    summary = summary.model_copy(update={"opening": [*_first(spent), *summary.opening]})
    return NsysRecorded(database=str(path), open_with=shows, ran=ran, cost=spent, summary=summary)


def _nsys_cost(p: NsysRecording, subject: Subject | None, program: str, folder: Path) -> RecordingCost | None:
    from aisp_mcp.profile.recording import cost, record, target_program

    if p.profile is not None:
        return None

    def again(recorded: bool) -> float:
        with TemporaryDirectory(dir=folder) as scratch:
            where, left = Path(scratch), _left(p, 900)
            if subject is None and not recorded:
                return record.plain(p.command, left)
            if subject is None:
                record.nsys(program, p.command, where, p.preset, p.capture, left)
            elif recorded:
                target_program.nsys(subject, program, where, p.preset, p.capture, left)
            else:
                return target_program.plain(subject, where, left)
            return record.took(where)

    first = record.took(folder)
    return cost.measure(p.cost, first, first, again, "the command, with nsys's own start and end,")


def _first(spent: RecordingCost | None) -> list[Statement]:
    """A measured cost comes before what it distorts; that it was not measured is said below."""
    return [spent.statement] if spent is not None and spent.ratio is not None else []


def _left(p: JobParams, default: float) -> float:
    """Time-out of the profiler: a little before the job would be killed, so that its report can still be read."""
    return (p.timeout_s or default) * 0.8


class NcuRecording(Recording):
    set: Literal["basic", "detailed", "full", "roofline"] = "detailed"
    kernel: str | None = Field(default=None, max_length=500, description="Regular expression on kernel names.")
    launch_skip: int = Field(default=0, ge=0, le=1_000_000)
    launch_count: int = Field(default=10, ge=1, le=1000)

    @property
    def launches(self) -> LaunchSelection:
        return LaunchSelection(
            self.set, self.kernel, self.launch_skip, self.launch_count, api_range=self.target is not None
        )


class NcuRecorded(Record):
    """The report, its two pages, and their summary."""

    files: list[str] = Field(description="report.raw.csv and report.details.csv, for aisp_ncu_summary.")
    open_with: list[str] = Field(default_factory=list, description="Commands that show the raw report.")
    ran: Ran | None = None
    summary: NcuSummary


def _ncu_plan(p: NcuRecording, ctx: Context) -> Plan:
    from aisp_mcp.profile.recording import commands
    from aisp_mcp.system.gpu import nvml

    _source(p, ctx)
    if p.profile is not None:
        return Plan(argv=[], timeout_s=p.timeout_s or 1800, resources=[])
    command = p.command or ["python", "target.py"]
    argv = commands.ncu(_program("ncu", ctx), command, Path("report.ncu-rep"), p.launches)
    return Plan(argv=[], timeout_s=p.timeout_s or 1800, resources=nvml.measuring_locks(), details={"profiler": argv})


@tool(
    cli="profile ncu", effect=RUNS, cost=MIN, job=JobSpec(timeout_s=1800, measures=True), needs=("ncu",),
    next=("aisp_ncu_summary", "aisp_profile_roofline"), estimate=_ncu_plan,
)  # fmt: skip
def aisp_profile_ncu(p: NcuRecording, ctx: Context) -> NcuRecorded:
    """Record kernels' hardware counters with Nsight Compute at unchanged clocks, and say what limits each."""
    from aisp_mcp.profile import digest
    from aisp_mcp.profile.readers import ncu
    from aisp_mcp.profile.recording import commands, record, target_program

    subject, ran = _source(p, ctx), None
    folder = _folder(ctx)
    if p.profile is not None:
        profile = record.read_ncu(_maybe("ncu", ctx), Path(p.profile).expanduser(), folder)
    elif subject is not None:
        pages, ran = target_program.ncu(subject, _program("ncu", ctx), folder, p.launches, _left(p, 1800))
        profile = ncu.read(*pages)
    else:
        profile = ncu.read(*record.ncu(_program("ncu", ctx), p.command, folder, p.launches, _left(p, 1800)))
    shows = commands.viewer_commands(folder, p.profile)
    return NcuRecorded(files=_files(folder), open_with=shows, ran=ran, summary=digest.ncu_summary(profile, None, 10))


def _maybe(name: str, ctx: Context) -> str | None:
    """The program, or None if there may be another way."""
    try:
        return _program(name, ctx)
    except Unavailable:
        return None


def _files(folder: Path) -> list[str]:
    """Names of the stored files."""
    return sorted(str(path) for path in folder.glob("report.*"))


class ScriptParams(JobParams):
    script: str | None = Field(default=None, max_length=4096, description="Python file to run.")
    args: list[str] = Field(default_factory=list, max_length=256)
    python: str | None = Field(default=None, max_length=4096, description="With torch; default: ours.")
    target: TargetName = None
    side: RoleName = "candidate"
    bench_root: BenchRoots = None
    cost: Cost = "auto"

    @property
    def interpreter(self) -> str:
        return self.python or sys.executable

    def chosen(self, ctx: Context, *others: str | None) -> Subject | None:
        """Exactly one of script, target and the others; the target looked up."""
        if sum(value is not None for value in (self.script, self.target, *others)) != 1:
            hint = "script: 'train.py', or target: 'ch07:row_sum'."
            raise UsageError("NO_COMMAND", "Give one of script and target (or a snapshot, where it is read).", hint)
        if self.script is not None:
            from aisp_mcp.profile.recording import record

            record.check_script(self.script)
        return _subject(self.target, self.side, self.bench_root, ctx)


class TorchRecording(ScriptParams):
    script: str | None = Field(default=None, max_length=4096, description="Python file.")
    mode: Literal["full", "memory", "flops", "modules", "stacks"] = Field(
        default="full", description="stacks: by py-spy."
    )


def _torch_plan(p: TorchRecording, ctx: Context) -> Plan:
    p.chosen(ctx)
    if p.mode == "stacks":
        _program("py-spy", ctx)
    return Plan(argv=[], timeout_s=p.timeout_s or 900, resources=[])


class TorchRecorded(Record):
    """A recording with torch.profiler: operators, modules or stacks, by mode. trace: Kineto or speedscope."""

    opening: list[Statement] = Field(default_factory=list, description="Where the time went.")
    trace: str
    total_flops: int | None = Field(default=None, description="In mode flops: of operators that torch can count.")
    uncounted: list[dict[str, Any]] = Field(
        default_factory=list, description="In mode flops: operators without a formula, by their own time."
    )
    modules: list[dict[str, Any]] = Field(default_factory=list, description="Host and device time per module.")
    stacks: list[dict[str, Any]] = Field(default_factory=list, description="Functions by their own time, sampled.")
    ran: Ran | None = None
    cost: RecordingCost | None = None
    source: Source | None = None
    cuda: bool = False
    operators: list[dict[str, Any]] = Field(default_factory=list)
    breakdown: list[Idle] = Field(default_factory=list)
    compile: CompileProfile | None = None
    insights: list[Found] = Field(default_factory=list)


@tool(
    cli="profile torch", effect=RUNS, cost=MIN, job=JobSpec(timeout_s=900, measures=True), needs=("torch",),
    next=("aisp_profile_hta", "aisp_profile_flame"), listed="default", estimate=_torch_plan,
)  # fmt: skip
def aisp_profile_torch(p: TorchRecording, ctx: Context) -> TorchRecorded:
    """Run a script or target under torch.profiler in a child: operators, kernels, memory, FLOPs, compile facts."""
    from aisp_mcp.profile import load
    from aisp_mcp.profile.overview import words
    from aisp_mcp.profile.pictures import flame

    subject, folder = p.chosen(ctx), _folder(ctx)
    if p.mode == "stacks":
        path, ran = _stacks(p, subject, folder, _program("py-spy", ctx))
        notes: list[str] = []
        weights, unit = flame.stacks(path, notes)
        spent = _stacks_cost(p, subject, folder, _program("py-spy", ctx))
        opening = [*_first(spent), *words.of_stacks(weights, unit, notes, "stacks")]
        hot = flame.hottest(weights, unit, 15)
        return TorchRecorded(opening=opening, trace=str(path), ran=ran, cost=spent, stacks=hot)
    ctx.progress(0, 3, f"recording {subject.label if subject else p.script}, and adding up its operators")
    (trace, facts), ran = _traced(p, subject, folder, p.mode)
    ctx.progress(1, 3, "reading the trace")
    profile = load.load(trace, "steady")
    ctx.progress(2, 3, "measuring what the recording costs")
    spent = _traced_cost(p, subject, folder, p.mode, facts)
    found = _facts(p.mode, profile, facts, folder)
    found["opening"] = [*_first(spent), *found["opening"]]
    return TorchRecorded(trace=str(trace), ran=ran, cost=spent, **found)


def _facts(mode: str, profile: Profile, facts: dict[str, Any], folder: Path) -> dict[str, Any]:
    from aisp_mcp.profile import digest
    from aisp_mcp.profile.insights.engine import insights
    from aisp_mcp.profile.overview import words
    from aisp_mcp.profile.recording import record

    profile = profile.model_copy(update={"compile": record.compiled(facts)})
    named = insights(profile).found
    opening = words.opening(profile, named)
    counts: dict[str, Any] = {}
    if mode == "flops":
        total, missing = record.flops(folder), record.uncounted(folder)
        opening = [words.of_flops(total, missing.whole_us, missing.rows), *opening]
        shown = [{"name": name, "count": count, "self_us": round(us, 3)} for name, count, us in missing.rows[:15]]
        counts = {"total_flops": total, "uncounted": shown}
    return {
        **counts,
        "opening": opening,
        "source": profile.source,
        "cuda": bool(facts["cuda"]),
        "modules": digest.section_rows(profile, "modules", 15, [])[0] if mode == "modules" else [],
        "operators": record.operators(folder, 15),
        "breakdown": digest.breakdowns(profile),
        "compile": profile.compile,
        "insights": [digest.brief(insight) for insight in named[:6]],
    }


def _traced(
    p: ScriptParams, subject: Subject | None, folder: Path, mode: TorchMode
) -> tuple[tuple[Path, dict[str, Any]], Ran | None]:
    from aisp_mcp.profile.recording import record, target_program

    if subject is not None:
        return target_program.torch(subject, folder, mode, _left(p, 900))
    assert p.script is not None
    return record.torch(p.script, p.args, folder, mode, p.interpreter, _left(p, 900)), None


def _stacks(p: ScriptParams, subject: Subject | None, folder: Path, program: str) -> tuple[Path, Ran | None]:
    from aisp_mcp.profile.recording import record, target_program

    if subject is not None:
        return target_program.stacks(subject, program, folder, _left(p, 900))
    assert p.script is not None
    return record.py_spy(program, [p.interpreter, p.script, *p.args], folder, _left(p, 900)), None


def _traced_cost(
    p: ScriptParams, subject: Subject | None, folder: Path, mode: TorchMode, facts: dict[str, Any]
) -> RecordingCost | None:
    from aisp_mcp.profile.recording import cost, record

    def again(recorded: bool) -> float:
        with TemporaryDirectory(dir=folder) as scratch:
            (_, report), _ = _traced(p, subject, Path(scratch), mode if recorded else "off")
        return float(report["seconds"])

    timed = "the script" if subject is None else "its calls"
    return cost.measure(p.cost, float(facts["seconds"]), record.took(folder), again, timed)


def _stacks_cost(p: ScriptParams, subject: Subject | None, folder: Path, program: str) -> RecordingCost | None:
    from aisp_mcp.profile.recording import cost, record, target_program

    def again(recorded: bool) -> float:
        with TemporaryDirectory(dir=folder) as scratch:
            where = Path(scratch)
            if recorded:
                _stacks(p, subject, where, program)
                return record.took(where)
            if subject is not None:
                return target_program.plain(subject, where, _left(p, 900))
            assert p.script is not None
            return record.plain([p.interpreter, p.script, *p.args], _left(p, 900))

    first = record.took(folder)
    return cost.measure(p.cost, first, first, again, "the command, with py-spy's own start and end,")


class MemoryRecording(ScriptParams):
    snapshot: str | None = Field(default=None, max_length=4096, description="Or a snapshot.")


def _memory_plan(p: MemoryRecording, ctx: Context) -> Plan:
    from aisp_mcp.profile.recording import record

    p.chosen(ctx, p.snapshot)
    if p.snapshot is not None:
        record.check_report(p.snapshot)
    return Plan(argv=[], timeout_s=p.timeout_s or 900, resources=[])


class MemoryRecorded(Record):
    """Per device; without a GPU, the host's tensors."""

    opening: list[Statement] = Field(default_factory=list)
    snapshot: str
    ran: Ran | None = None
    cost: RecordingCost | None = None
    source: Source
    host: bool = Field(description="The history is of host memory.")
    memory: list[MemoryProfile]
    insights: list[Found]


@tool(
    cli="profile memory", effect=RUNS, cost=MIN, job=JobSpec(timeout_s=900),
    next=("aisp_profile_torch",), estimate=_memory_plan,
)  # fmt: skip
def aisp_profile_memory(p: MemoryRecording, ctx: Context) -> MemoryRecorded:
    """Show a script's, target's or snapshot's memory: timeline, peak with stacks, growth per step, unused reserve."""
    from aisp_mcp.profile import digest
    from aisp_mcp.profile.insights.engine import insights
    from aisp_mcp.profile.overview import words
    from aisp_mcp.profile.readers import snapshot

    subject, ran, spent = p.chosen(ctx, p.snapshot), None, None
    path, host = Path(p.snapshot or ""), False
    if p.snapshot is None:
        folder = _folder(ctx)
        (_, facts), ran = _traced(p, subject, folder, "memory")
        path, host = folder / "memory.json", not facts["cuda"]
        spent = _traced_cost(p, subject, folder, "memory", facts)
    profile = snapshot.read(path)
    shown = [
        m.model_copy(update={"timeline": m.timeline[:: max(1, len(m.timeline) // 50)]}) for m in profile.memory[:8]
    ]
    found = insights(profile).found
    return MemoryRecorded(
        opening=[*_first(spent), *words.opening(profile, found)], snapshot=str(path), ran=ran, cost=spent,
        source=profile.source, host=host, memory=shown, insights=[digest.brief(i) for i in found[:6]],
    )  # fmt: skip
