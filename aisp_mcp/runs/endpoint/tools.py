"""A server over HTTP, measured with an installed load client."""

from __future__ import annotations

import time
from typing import Literal

from pydantic import Field

from aisp_mcp.runs.endpoint.records import Load, ServeBench
from aisp_mcp.server.context import Context
from aisp_mcp.server.registry import MIN, RUNS, JobParams, JobSpec, Plan, tool

_TIMEOUT_S = 3600.0
IN_TIME = 0.97  # share of a job's time after which no repeat may end: an answer also has to be written


class LoadParams(JobParams):
    client: Literal["auto", "guidellm", "aiperf", "vllm"] = "auto"
    concurrency: int = Field(default=4, ge=1, le=4096)
    loads: list[str] = Field(
        default_factory=list, max_length=20, description="8 at once, 2/s at random, 70% of the highest, trace."
    )
    requests: int = Field(default=40, ge=5, le=100_000, description="Per repeat.")
    repeats: int = Field(default=5, ge=1, le=50)
    output_tokens: int = Field(default=64, ge=2, le=100_000)
    prompt_words: int = Field(default=100, ge=1, le=100_000, description="Of generated prompts.")
    prompts: str | None = Field(default=None, max_length=4096, description="File: a prompt a line, JSON, or a trace.")


class ServeBenchParams(LoadParams):
    url: str = Field(max_length=2000, description="OpenAI-compatible, such as http://127.0.0.1:8000.")
    candidate: str | None = Field(default=None, max_length=2000, description="A second server, judged against it.")
    model: str | None = Field(default=None, max_length=300, description="Default: the only one served.")
    candidate_model: str | None = Field(default=None, max_length=300, description="Default: as model.")
    slo_ttft_ms: float | None = Field(default=None, gt=0, description="Goodput counts requests within these.")
    slo_tpot_ms: float | None = Field(default=None, gt=0)
    goal: Literal["latency", "ttft", "tpot", "throughput", "goodput"] = Field(
        default="latency", description="What is optimised."
    )
    limit: float = Field(default=0.05, ge=0, lt=1, description="Share that it may cost in other metrics.")


def _estimate(p: ServeBenchParams, ctx: Context) -> Plan:
    from aisp_mcp.runs.endpoint import clients, loads, servers

    client, program = clients.find(None if p.client == "auto" else p.client)
    urls = [servers.address(url) for url in (p.url, p.candidate) if url]
    under = loads.parse(p.loads) if p.loads else loads.default(p.concurrency, p.candidate is not None)
    runs = 1 + p.repeats * (3 if p.candidate else 1) * len(under)
    details = {"client": client.name, "servers": urls, "runs": runs, "requests": runs * p.requests}
    return Plan(argv=[program], timeout_s=p.timeout_s or _TIMEOUT_S, resources=[], details=details)


@tool(
    cli="serve-bench",
    effect=RUNS,
    cost=MIN,
    job=JobSpec(timeout_s=_TIMEOUT_S, measures=True),
    next=("aisp_benchmark_import", "aisp_inference_vllm"),
    estimate=_estimate,
    verdict=True,
    chart="loads",
)
def aisp_serve_bench(p: ServeBenchParams, ctx: Context) -> ServeBench:
    """Measure an OpenAI-compatible server with GuideLLM, AIPerf or vLLM's client; judge a second one against it.

    The client first measures a stub with known latencies. Two servers are measured in turns under at least three
    loads: better, worse, a trade-off with its figures, same or inconclusive. The texts of answers are not compared.
    """
    from aisp_mcp.runs.endpoint import knee, measuring, reporting
    from aisp_mcp.server.text.numbers import rounded

    began = time.monotonic()
    plan, servers = reporting.prepared(p.model_dump(), ctx, _TIMEOUT_S)
    trusted = measuring.self_test(plan)
    measured = measuring.measure(plan, servers, ctx.progress, began + IN_TIME * plan.timeout_s)
    shown = reporting.all_figures(plan, servers, measured)
    pair = measuring.compare(plan, measured, shown, p.goal, p.limit) if p.candidate else None
    return rounded(
        ServeBench(
            sentence=reporting.sentence(shown, pair), servers=shown, pair=pair, self_test=trusted,
            knees=knee.knees(servers, measured),
            load=Load(**p.model_dump(include={"requests", "output_tokens"}), repeats=measured[0].repeats,
                      concurrency=measured[0].load.streams, loads=[runs.load.label for runs in measured],
                      prompt_words=None if p.prompts else p.prompt_words),
            definitions=reporting.DEFINITIONS, notes=reporting.notes(shown, plan, measured),
        )
    )  # fmt: skip
