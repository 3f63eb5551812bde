"""Words of the pages: titles of jobs and sections, counts, lists."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from aisp_mcp.judge.records.verdict import BEST_FIRST

_TITLES = {
    "aisp_run_benchmarks": "Benchmarks",
    "aisp_benchmark_gate": "Gate",
    "aisp_verify_candidate": "Verification",
    "aisp_bench_commands": "Comparison of commands",
    "aisp_profile_torch": "PyTorch profile",
    "aisp_profile_nsys": "Nsight Systems profile",
    "aisp_profile_ncu": "Nsight Compute profile",
    "aisp_profile_memory": "Memory profile",
    "aisp_hw_speed": "Speed of this machine",
    "aisp_hw_cache": "Cache probe",
    "aisp_hw_disk": "Disk probe",
    "aisp_gpu_bandwidth": "GPU bandwidth",
    "aisp_hw_roofline": "Roofline probe",
    "aisp_inference_vllm": "Serving plan",
    "aisp_inference_kv_cache": "KV cache",
    "aisp_inference_quantization": "Weight formats",
    "aisp_distributed_plan": "Training plan",
    "aisp_predict_scaling": "Scaling",
    "aisp_distributed_nccl": "NCCL",
    "aisp_launch_plan": "Launch command",
    "aisp_cluster_slurm": "Slurm job",
    "aisp_cost_estimate": "Cost",
    "aisp_optimize_roi": "Return on effort",
    "aisp_optimize_techniques": "Techniques",
}
SECTIONS = {
    "leaderboards": "Leaderboards",
    "tradeoffs": "Time against memory",
    "pareto": "Pareto fronts",
    "whatif": "What if",
    "stacking": "Combinations",
    "power": "Power",
    "cost": "Cost",
    "scaling": "Scaling",
    "recommendations": "Recommendations",
}


def title_of(tool: str) -> str:
    """The title of a tool's job or answer, in words instead of the tool's name."""
    plain = tool.removeprefix("aisp_").replace("_", " ")
    return _TITLES.get(tool, plain[:1].upper() + plain[1:])


def count(number: int, noun: str) -> str:
    """1 run, 2,000 runs."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def ordered(counts: Mapping[str, int]) -> dict[str, int]:
    """Counts of verdicts from good to bad, without zeros."""
    order = [verdict.value for verdict in BEST_FIRST]
    names = [*order, *(name for name in counts if name not in order)]
    return {name: counts[name] for name in names if counts.get(name)}


def listed(parts: Iterable[str]) -> str:
    """a, b and c."""
    items = list(parts)
    return " and ".join([", ".join(items[:-1]), items[-1]]) if len(items) > 1 else "".join(items)


def summed(counts: Mapping[str, int]) -> str:
    """3 faster, 1 slower and 2 inconclusive."""
    return listed(f"{number:,} {name}" for name, number in ordered(counts).items())
