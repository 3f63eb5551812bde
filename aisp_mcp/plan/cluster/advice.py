"""Launch commands, batch scripts and NCCL settings, with the caveats of each."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from aisp_mcp.machine.probes.records import Collectives
from aisp_mcp.plan.cluster import collectives, launch, nccl, slurm
from aisp_mcp.plan.cluster.nccl import Described
from aisp_mcp.plan.data import tables
from aisp_mcp.plan.records import Band, Planned, Source
from aisp_mcp.records import Record
from aisp_mcp.server.context import Context
from aisp_mcp.store.records.job_state import JobState
from aisp_mcp.system import topology
from aisp_mcp.system.bus import FACTORS

READ_ON = "2026-11-23"
NVLINK_NODE = 8  # GPUs of the largest runs to which curves were fitted
MOST_ERROR = 0.3  # average leave-one-out error; above this, the measurement is noise or not linear
_NCCL = Source(what="NCCL user guide, environment variables (NVIDIA/nccl@5067397c, env.rst)", as_of=READ_ON)
_TORCHRUN = Source(what="PyTorch documentation, torchrun: static rendezvous by --node-rank", as_of=READ_ON)


class LaunchPlan(Record):
    """One entry per launcher."""

    headline: str
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
    busbw_bytes_per_s: float | None = Field(default=None, description="Bus bandwidth as nccl-tests defines it.")
    p10: float | None = Field(default=None, description="None where the band is unknown.")
    p90: float | None = None


class NcclPlan(Record):
    """variables is empty if NCCL needs no help. fits come from a measurement on this machine."""

    headline: str
    variables: list[nccl.Variable]
    facts: list[str] = Field(description="The topology as read or described.")
    fits: list[collectives.Fit]
    times: list[NcclTime]
    measured_job: str | None = Field(default=None, description="Job of aisp_hw_nccl whose rows were fitted.")


def launch_plan(job: launch.LaunchJob, launchers: Sequence[str]) -> Planned[LaunchPlan]:
    """Write each launcher's text."""
    return Planned[LaunchPlan](
        answer=LaunchPlan(headline=_launched(job), launches=[launch.LAUNCHERS[name](job) for name in launchers]),
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


def _launched(job: launch.LaunchJob) -> str:
    processes = job.nodes * (job.gpus or 1)
    return f"{job.title} as {processes} processes on {job.nodes} node(s), {job.gpus or 1} per node."


def slurm_script(job: launch.LaunchJob, request: slurm.BatchResources) -> Planned[SlurmScript]:
    """Write the batch script."""
    return Planned[SlurmScript](
        answer=SlurmScript(script=slurm.batch_script(job, request), submit=f"sbatch {job.name}.sbatch"),
        assumptions=[
            "Script, environment and data are on a file system that all nodes share.",
            "torchrun is on PATH on the nodes; GPUs are a GRES that --gpus-per-node knows.",
            f"The job gets SIGTERM {slurm.NOTICE_S} s before its limit and hands it to the ranks.",
        ],
        band={},
        not_modelled=["Queue time. Limits of the partition: sbatch --test-only accepts a time above MaxTime."],
        definitions={"gpus": "per node", "minutes": "wall-clock limit of the job"},
        check_here=f"sbatch --test-only {job.name}.sbatch",
        sources=[Source(what="Slurm documentation, sbatch and srun (22.05)", as_of=READ_ON), _TORCHRUN],
    )


def described_plan(machine: Described, sizes: Sequence[int]) -> Planned[NcclPlan]:
    """NCCL settings for a topology that the user describes."""
    ranks, shares = machine.nodes * machine.gpus, tables.collectives()
    ratio = shares.bands["network" if machine.nodes > 1 else "rack" if machine.gpus > NVLINK_NODE else "inside"]
    times = [
        NcclTime(
            collective=name,
            bytes=size,
            seconds=value,
            busbw_bytes_per_s=_busbw(name, size, value, ranks),
            p10=value * ratio.p10,
            p90=value * ratio.p90,
        )
        for name, size, value in machine.times(sizes)
    ]
    variables = machine.variables()
    return Planned[NcclPlan](
        answer=NcclPlan(
            headline=_headline(ranks, times, variables),
            variables=variables,
            facts=machine.facts(),
            fits=[],
            times=times,
        ),
        assumptions=[
            "Inside a node: curves of nccl-tests on the NVLink generation of that rate, with NVLS from Hopper on; "
            f"{shares.network.share:.0%} of the adapters' rate, {shares.network.start_us:.0f} us more between nodes.",
            "Over several nodes, all adapters of a node serve its ranks; the slower of links and adapters counts.",
        ],
        band=_time_bands(times, ratio.basis),
        not_modelled=["In-network reduction between nodes (SHARP), congestion, oversubscription, other topologies."],
        definitions={
            "nvlink": "GB/s of one GPU, both directions together, as data sheets give it",
            "bytes": "as nccl-tests: the larger of send and receive buffer",
            "busbw": "algorithm bandwidth x bus factor of nccl-tests, bytes/s",
        },
        check_here="aisp hw nccl",
        sources=[_NCCL, *shares.sources],
    )


def _time_bands(times: Sequence[NcclTime], basis: str) -> dict[str, Band]:
    return {
        f"{t.collective} {t.bytes}": Band(p10=t.p10, p90=t.p90, unit="s", basis=basis)
        for t in times
        if t.p10 is not None and t.p90 is not None
    }


def _busbw(name: str, size: int, seconds: float, ranks: int) -> float:
    return size * FACTORS[name](ranks) / seconds if seconds else 0.0


def _headline(ranks: int, times: Sequence[NcclTime], variables: Sequence[nccl.Variable]) -> str:
    count = f"{len(variables)} NCCL variable(s) to set" if variables else "No NCCL variable needs to be set"
    largest = max((row for row in times if row.collective == "all_reduce"), key=lambda row: row.bytes, default=None)
    if largest is None:
        return f"{count}; no collective was measured here, so no time is predicted."
    bus = f" ({largest.busbw_bytes_per_s / 1e9:.0f} GB/s bus bandwidth)" if largest.busbw_bytes_per_s else ""
    took = f"{largest.bytes / 1e6:g} MB over {ranks} ranks takes {largest.seconds * 1e3:.3g} ms{bus}"
    return f"{count}; an all-reduce of {took}."


def nccl_plan(ctx: Context, nodes: int, sizes: Sequence[int]) -> Planned[NcclPlan]:
    """Read the topology, and fit the newest stored measurement of collectives, if there is one."""
    machine = topology.read()
    job, measured = _newest(ctx)
    fits = _fits(measured) if measured else []
    times = [_time(fit, size) for fit in fits if fit.left_out_mape <= MOST_ERROR for size in sizes]
    poor = [fit.collective for fit in fits if fit.left_out_mape > MOST_ERROR]
    return Planned[NcclPlan](
        answer=NcclPlan(
            headline=_headline(measured.ranks if measured else 0, times, nccl.variables(machine, nodes)),
            variables=nccl.variables(machine, nodes),
            facts=[
                f"{len(machine.gpus)} GPUs, {sum(bool(pair.nvlink) for pair in machine.pairs)} pairs over NVLink",
                f"{len(machine.hcas)} InfiniBand or RoCE ports, {len(machine.nics)} network interfaces",
            ],
            fits=fits,
            times=times,
            measured_job=job,
        ),
        assumptions=[f"{nodes} node(s), all like this one."]
        + ([f"Times hold for {measured.ranks} ranks over {measured.backend}."] if measured else []),
        band=_time_bands(times, "sizes left out in turn"),
        not_modelled=["Other ranks than measured, congestion, algorithm changes between measured sizes."]
        + ([] if measured else ["Times: nothing has been measured here yet; aisp_hw_nccl measures it."])
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
    jobs, _ = ctx.store.list_jobs(JobState.SUCCEEDED, "aisp_hw_nccl", 1, None, ctx.sees)
    if not jobs:
        return None, None
    envelope = ctx.store.job(jobs[0].id).envelope or {}
    return jobs[0].id, Collectives.model_validate(envelope["result"])


def _fits(measured: Collectives) -> list[collectives.Fit]:
    """One line per collective with at least three sizes."""
    points: dict[str, list[collectives.Point]] = {}
    for row in measured.rows:
        seconds = collectives.busbw_seconds(row.name, row.bytes, row.busbw.median, measured.ranks)
        points.setdefault(row.name, []).append((row.bytes, seconds))
    fits = []
    for name, rows in points.items():
        try:
            fits.append(collectives.fit(name, rows))
        except ValueError:
            continue  # too few sizes, or noise hides the growth: no fit is better than a wrong one
    return fits


def _time(fit: collectives.Fit, size: int) -> NcclTime:
    value = fit.seconds(size)
    return NcclTime(collective=fit.collective, bytes=size, seconds=value, p10=value * fit.p10, p90=value * fit.p90)
