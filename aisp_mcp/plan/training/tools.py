"""Plans for training on many GPUs, and the commands that start them."""

from __future__ import annotations

from typing import Any, Literal, TypeVar

from pydantic import Field

from aisp_mcp.plan.cluster.advice import LaunchPlan, NcclPlan, SlurmScript
from aisp_mcp.plan.cluster.slurm import ClusterRan
from aisp_mcp.plan.records import Count, Gpus, Planned, Positive, Rank, Size
from aisp_mcp.plan.training.distributed import DistributedPlan
from aisp_mcp.plan.training.measure import Measured
from aisp_mcp.records import Params
from aisp_mcp.server.context import Context
from aisp_mcp.server.registry import MIN, MS, READS, RUNS, Ask, Call, JobParams, JobSpec, Plan, S, tool

_MEASURE_S = 300.0
_CLUSTER_S = 3600.0

Written = TypeVar("Written", LaunchPlan, SlurmScript)
StackName = Literal["eager", "compiled", "torchtitan", "megatron", "nemo"]


class LayoutSizes(Params):
    tensor: Size | None = None
    pipeline: Size | None = None
    context: Size | None = None
    expert: Size | None = None
    zero: Literal[0, 1, 2, 3] | None = None
    micro_batch: Size | None = None
    virtual_stages: Size | None = None
    recompute: Literal["none", "selective", "full"] | None = None


class RecipeOptions(LayoutSizes):
    precision: Literal["mixed", "bf16", "fp32", "fp8", "fp4", "nf4"] = "mixed"
    optimizer: Literal["adam", "adam8bit", "adafactor", "muon", "sgd"] = "adam"
    fp32_gradients: bool = False
    lora_rank: Rank | None = None
    flash: bool = True
    fused_loss: bool = False
    dropout: bool = False
    sequence_parallel: bool = True
    reshard: bool = True
    offload: bool = False
    stack: StackName | None = None


class DistributedParams(RecipeOptions):
    model: str | None = None
    architecture: dict[str, Any] | None = None
    gpus: Gpus
    gpu: str | None = None
    gpus_per_node: Size | None = None
    seq: Size = 4096
    batch: Size | None = None  # sequences per step
    network_gb_s: Positive | None = None


_LAYOUT = {
    "tensor": "tensor", "pipeline": "pipeline", "context": "context", "expert": "expert", "zero": "zero",
    "micro_batch": "microbatch", "virtual_stages": "virtual", "recompute": "recompute",
}  # fmt: skip
_RECIPE = ("lora_rank", "flash", "fused_loss", "dropout", "sequence_parallel", "reshard", "offload")


@tool(cli="distributed plan", effect=READS, cost=MS, next=("aisp_distributed_measure", "aisp_launch_plan"))
def aisp_distributed_plan(p: DistributedParams, ctx: Context) -> Planned[DistributedPlan]:
    """Lay out training over GPUs: DP, TP, PP, CP, EP, ZeRO; itemised memory, step time with band."""
    from aisp_mcp.plan import own

    result = planned(p)
    best = result.answer.best
    if best.step is None or p.model is None:
        return result
    from aisp_mcp.plan import lookup

    name, sku = own.of_stack(p.model, best.stack), lookup.gpu(p.gpu).sku
    corrected = own.beside(ctx, name, sku, {"best.step.total_s": best.step.total_s})
    return result.model_copy(update={"answer": result.answer.model_copy(update={"calibrated": corrected})})


def planned(p: DistributedParams) -> Planned[DistributedPlan]:
    """The plan without corrections by own runs."""
    from aisp_mcp.errors import UsageError
    from aisp_mcp.plan import lookup
    from aisp_mcp.plan.training import distributed
    from aisp_mcp.plan.training.recipe import optimizer_bytes, variant

    if p.precision == "nf4" and p.lora_rank is None:
        raise UsageError("FROZEN_ONLY", "Weights in nf4 are frozen: only adapters are trained.", "Give lora_rank=16.")

    options: dict[str, Any] = {name: getattr(p, name) for name in _RECIPE}
    options["optimizer"] = optimizer_bytes(p.precision, p.optimizer)
    options |= {"gradients": 4} if p.fp32_gradients else {}
    facts = lookup.gpu(p.gpu)
    task = distributed.Task(
        arch=lookup.architecture(p.model, p.architecture),
        facts=facts,
        gpus=p.gpus,
        per_node=p.gpus_per_node or lookup.link_domain(facts),
        seq=p.seq,
        batch=p.batch or p.gpus,
        recipe=variant(p.precision, tuple(options.items())),
        network_bytes_s=p.network_gb_s * 1e9 if p.network_gb_s else None,
    )
    fixed = {name: getattr(p, field) for field, name in _LAYOUT.items()}
    return distributed.plan(task, {name: value for name, value in fixed.items() if value is not None}, p.stack)


class MeasureParams(JobParams):
    layers: Count = 4
    hidden: Count = 512
    heads: Count = 8
    kv_heads: Count | None = None
    vocab: Count = 8192
    seq: Count = 256
    batch: Count = 2
    precision: Literal["fp32", "bf16"] = "fp32"
    checkpoint: bool = False


@tool(
    cli="distributed measure",
    effect=RUNS,
    cost=MIN,
    job=JobSpec(timeout_s=_MEASURE_S, measures=True),
    needs=("torch",),
    next=("aisp_distributed_plan",),
)
def aisp_distributed_measure(p: MeasureParams, ctx: Context) -> Measured:
    """Train a synthetic transformer for three steps here, and compare predicted with measured peak memory and time."""
    from aisp_mcp.errors import UsageError
    from aisp_mcp.plan.training import measure

    if p.hidden % p.heads or p.heads % (p.kv_heads or p.heads):
        raise UsageError("BAD_SHAPE", "heads must divide hidden, and kv_heads must divide heads.")
    names = ("layers", "hidden", "heads", "vocab", "seq", "batch", "checkpoint")
    params = {name: getattr(p, name) for name in names}
    params |= {"kv_heads": p.kv_heads or p.heads, "head_dim": p.hidden // p.heads, "dtype": p.precision}
    params["ffn"] = 8 * p.hidden // 3
    return measure.run(params, p.timeout_s or _MEASURE_S)


class NcclParams(Params):
    nodes: Gpus = 1
    sizes_mb: list[Positive] = Field(default=[1, 64, 1024], min_length=1)
    fabric: str | None = Field(default=None, description="Of a node, as ib-400x8.")
    nvlink: Positive | None = Field(default=None, description="GB/s, both directions.")
    gpus_per_node: Gpus = 8


@tool(cli="distributed nccl", effect=READS, cost=MS, next=("aisp_hw_nccl", "aisp_gpu_topology"))
def aisp_distributed_nccl(p: NcclParams, ctx: Context) -> Planned[NcclPlan]:
    """Choose NCCL variables and predict collective times for this or a described topology."""
    from aisp_mcp.plan.cluster import advice, nccl

    sizes = [int(size * 1e6) for size in p.sizes_mb]
    if p.fabric is None and p.nvlink is None:
        return advice.nccl_plan(ctx, p.nodes, sizes)
    return advice.described_plan(nccl.parse(p.nodes, p.gpus_per_node, p.fabric, p.nvlink), sizes)


class LaunchParams(Params):
    command: list[str] = Field(min_length=1)
    nodes: Count = 1
    gpus: Count = Field(default=1, description="Per node.")
    launchers: list[Literal["torchrun", "srun", "accelerate", "kubernetes"]] = Field(
        default=["torchrun", "srun", "accelerate"], min_length=1
    )


@tool(cli="launch plan", effect=READS, cost=MS, next=("aisp_cluster_slurm",))
def aisp_launch_plan(p: LaunchParams, ctx: Context) -> Planned[LaunchPlan]:
    """Write commands that start a script on nodes x GPUs: torchrun, srun, accelerate, a Kubernetes manifest."""
    from aisp_mcp.plan.cluster import advice
    from aisp_mcp.plan.cluster.launch import of_command

    job = of_command(p.command, p.nodes, p.gpus)
    return _with_options_after_the_script(p, advice.launch_plan(job, list(p.launchers)))


def _with_options_after_the_script(p: LaunchParams | SlurmParams, planned: Planned[Written]) -> Planned[Written]:
    """The plan, which opens its assumptions with words that the script gets although they are options of the command
    line here.
    """
    own = {f"--{name}" for name in type(p).model_fields}
    meant = [word for word in p.command[1:] if word.partition("=")[0] in own]
    if not meant:
        return planned
    said = f"{p.command[0]} itself gets {' and '.join(meant)}: what comes after the script is the script's."
    return planned.model_copy(update={"assumptions": [said, *planned.assumptions]})


class SlurmParams(Params):
    command: list[str] = Field(min_length=1)
    nodes: Count = 1
    gpus: int = Field(default=8, ge=0, description="Per node.")
    minutes: Count = 60
    partition: str | None = Field(default=None, pattern=r"^[\w.,-]{1,100}$")
    account: str | None = Field(default=None, pattern=r"^[\w.-]{1,100}$")
    exclusive: bool = True
    submit: bool = Field(default=False, description="Run it now, as a job; asks first.")
    confirm: bool = False


@tool(cli="cluster slurm", effect=RUNS, cost=S, next=("aisp_launch_plan", "aisp_distributed_nccl"))
def aisp_cluster_slurm(p: SlurmParams, ctx: Context) -> Planned[SlurmScript] | Ask | Call:
    """Write a batch script for Slurm, one torchrun per node through srun; with submit, run it as a job."""
    from aisp_mcp.jobs.executors.placement import slurm_variables
    from aisp_mcp.plan.cluster import advice, slurm
    from aisp_mcp.plan.cluster.launch import of_command
    from aisp_mcp.plan.cluster.slurm import BatchResources

    job = of_command(p.command, p.nodes, p.gpus)
    names = ("minutes", "partition", "account", "exclusive")
    resources = BatchResources(**{name: getattr(p, name) for name in names})
    written = _with_options_after_the_script(p, advice.slurm_script(job, resources))
    if not p.submit:
        return written
    options = {name: getattr(p, name) for name in ("nodes", "gpus", "partition", "account")}
    variables = slurm_variables({**options, "time": str(p.minutes)})
    slurm.check_partition(variables, p.minutes)
    if not p.confirm:
        return Ask(f"Submit {p.command[0]} on {p.nodes} x {p.gpus} GPUs for up to {p.minutes} min?", written)
    args = {"command": p.command, "timeout_s": 60.0 * p.minutes, "exclusive": p.exclusive, "confirm": True}
    return Call("aisp_cluster_run", args, variables)


class ClusterRunParams(JobParams):
    command: list[str] = Field(min_length=1)
    exclusive: bool = True


def _estimate_cluster(p: ClusterRunParams, ctx: Context) -> Plan:
    return Plan(argv=[], timeout_s=p.timeout_s or _CLUSTER_S, resources=["nodes"] if p.exclusive else [])


@tool(
    cli="cluster run",
    effect=RUNS,
    cost=MIN,
    job=JobSpec(timeout_s=_CLUSTER_S),
    next=("aisp_job_status",),
    estimate=_estimate_cluster,
)
def aisp_cluster_run(p: ClusterRunParams, ctx: Context) -> ClusterRan:
    """Run a script on every node of a Slurm allocation, one torchrun per node; with executor slurm it makes one."""
    from aisp_mcp.plan.cluster import slurm

    return slurm.run_script(p.command, p.timeout_s or _CLUSTER_S)
