"""Launch commands, batch scripts and NCCL settings, with what a reader must know about each."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from aisp_mcp.machine.probes.records import Collectives
from aisp_mcp.plan.cluster import alpha_beta, launch, nccl, slurm
from aisp_mcp.plan.records.plan import Band, Planned, Source
from aisp_mcp.records import Record
from aisp_mcp.server.context import Context
from aisp_mcp.store.records.job_state import JobState
from aisp_mcp.system import topology

READ_ON = "2026-11-23"
MOST_ERROR = 0.3  # of sizes left out in turn, on average: above it the measurement is noise or no line
_NCCL = Source(what="NCCL user guide, environment variables (NVIDIA/nccl@5067397c, env.rst)", as_of=READ_ON)
_TORCHRUN = Source(what="PyTorch documentation, torchrun: static rendezvous by --node-rank", as_of=READ_ON)


class LaunchPlan(Record):
    """One entry per launcher."""

    launches: list[launch.Launch]


class SlurmScript(Record):
    """Text of a file for sbatch."""

    script: str
    submit: str


class NcclTime(Record):
    """Predicted time of one collective at one size."""

    collective: str
    bytes: int
    seconds: float
    p10: float
    p90: float


class NcclPlan(Record):
    """variables is empty where NCCL needs no help. fits and times come from a measurement on this machine."""

    variables: list[nccl.Variable]
    facts: list[str] = Field(description="What was read of the topology.")
    fits: list[alpha_beta.Fit]
    times: list[NcclTime]
    measured_job: str | None = Field(default=None, description="Job of aisp_hw_nccl whose rows were fitted.")


def launch_plan(job: launch.Job, launchers: Sequence[str]) -> Planned[LaunchPlan]:
    """Write each launcher's text."""
    return Planned[LaunchPlan](
        result=LaunchPlan(launches=[launch.LAUNCHERS[name](job) for name in launchers]),
        assumptions=[
            f"{job.gpus} processes per node, one per GPU; port {launch.PORT} of the first node is free.",
            "The script reads RANK, LOCAL_RANK and WORLD_SIZE, as torch.distributed does.",
        ],
        band={},
        not_modelled=["Elastic restarts, containers under Slurm (Pyxis), mixed node types."],
        definitions={"node rank": "static: rank order is node order, unlike the c10d rendezvous"},
        check_here=launch.torchrun(job.model_copy(update={"nodes": 1})).text,
        sources=[_TORCHRUN],
    )


def slurm_script(job: launch.Job, request: slurm.Request) -> Planned[SlurmScript]:
    """Write the batch script."""
    return Planned[SlurmScript](
        result=SlurmScript(script=slurm.script(job, request), submit=f"sbatch {job.name}.sbatch"),
        assumptions=[
            "Script, environment and data lie on a file system that all nodes share.",
            "torchrun is on PATH on the nodes; GPUs are a GRES that --gpus-per-node knows.",
            f"The job gets SIGTERM {slurm.NOTICE_S} s before its limit and hands it to the ranks.",
        ],
        band={},
        not_modelled=["Queue time. Limits of the partition: sbatch --test-only accepts a time above MaxTime."],
        definitions={"gpus": "per node", "minutes": "wall-clock limit of the job"},
        check_here=f"sbatch --test-only {job.name}.sbatch",
        sources=[Source(what="Slurm documentation, sbatch and srun (22.05)", as_of=READ_ON), _TORCHRUN],
    )


def nccl_plan(ctx: Context, nodes: int, sizes: Sequence[int]) -> Planned[NcclPlan]:
    """Read the topology, and fit the newest measurement of collectives kept here, if there is one."""
    place = topology.read()
    job, measured = _newest(ctx)
    fits = _fits(measured) if measured else []
    times = [_time(fit, size) for fit in fits if fit.left_out_mape <= MOST_ERROR for size in sizes]
    poor = [fit.collective for fit in fits if fit.left_out_mape > MOST_ERROR]
    return Planned[NcclPlan](
        result=NcclPlan(
            variables=nccl.variables(place, nodes),
            facts=[
                f"{len(place.gpus)} GPUs, {sum(bool(pair.nvlink) for pair in place.pairs)} pairs over NVLink",
                f"{len(place.hcas)} InfiniBand or RoCE ports, {len(place.nics)} network interfaces",
            ],
            fits=fits,
            times=times,
            measured_job=job,
        ),
        assumptions=[f"{nodes} node(s), all like this one."]
        + ([f"Times hold for {measured.ranks} ranks over {measured.backend}."] if measured else []),
        band={
            f"{t.collective} {t.bytes}": Band(p10=t.p10, p90=t.p90, unit="s", basis="sizes left out in turn")
            for t in times
        },
        not_modelled=["Other ranks than measured, congestion, algorithm changes between measured sizes."]
        + ([] if measured else ["Times: nothing is measured here yet; aisp_hw_nccl does."])
        + ([f"Times of {', '.join(poor)}: a line misses left-out sizes by over {MOST_ERROR:.0%}."] if poor else []),
        definitions={"t": "alpha + bytes / beta", "bytes": "as nccl-tests: the larger of send and receive buffer"},
        check_here="aisp hw nccl",
        sources=[Source(what="topology of this machine, read now through NVML and /sys", as_of=_today(ctx)), _NCCL],
    )


def _today(ctx: Context) -> str:
    import datetime

    return datetime.datetime.fromtimestamp(ctx.clock(), datetime.UTC).date().isoformat()


def _newest(ctx: Context) -> tuple[str | None, Collectives | None]:
    """The last answer of aisp_hw_nccl that the caller may see."""
    found, _ = ctx.store.list_jobs(JobState.SUCCEEDED, "aisp_hw_nccl", 1, None, ctx.sees)
    if not found:
        return None, None
    envelope = ctx.store.job(found[0].id).envelope or {}
    return found[0].id, Collectives.model_validate(envelope["result"])


def _fits(measured: Collectives) -> list[alpha_beta.Fit]:
    """One line per collective with at least three sizes."""
    points: dict[str, list[alpha_beta.Point]] = {}
    for row in measured.rows:
        seconds = alpha_beta.seconds(row.name, row.bytes, row.busbw.median, measured.ranks)
        points.setdefault(row.name, []).append((row.bytes, seconds))
    fits = []
    for name, rows in points.items():
        try:
            fits.append(alpha_beta.fit(name, rows))
        except ValueError:
            continue  # too few sizes, or noise hides the growth: no line is better than a wrong one
    return fits


def _time(fit: alpha_beta.Fit, size: int) -> NcclTime:
    value = fit.seconds(size)
    return NcclTime(collective=fit.collective, bytes=size, seconds=value, p10=value * fit.p10, p90=value * fit.p90)
