"""Questions and terms, answered from shipped pages, the tools' own documentation and this machine's runs."""

from __future__ import annotations

from pydantic import Field

from aisp_mcp.assist.ask.records import Answer, Explanation
from aisp_mcp.records import Params
from aisp_mcp.server.context import Context
from aisp_mcp.server.registry import MS, READS, S, tool


class AskParams(Params):
    query: str = Field(min_length=3, max_length=500)
    limit: int = Field(default=3, ge=1, le=10, description="Passages at most.")
    use_llm: bool = Field(default=True, description="false: passages only, without a language model.")


@tool(cli="ai ask", effect=READS, cost=S, needs=(), next=("aisp_explain", "aisp_suggest_tools"))
def aisp_ask(p: AskParams, ctx: Context) -> Answer:
    """Answer a question about performance from cited passages: concepts, documentation, tools, runs of this machine.

    With a language model configured (AISP_LLM_URL) sentences are returned too. Each cites passages; a sentence whose
    numbers or words do not occur in the cited passages is dropped and counted.
    """
    from aisp_mcp.assist.ask.answers import answer

    return answer(p.query, ctx, p.limit, p.use_llm)


class ExplainParams(Params):
    query: str = Field(min_length=2, max_length=80, description="Such as roofline, kv-cache, bank conflict, MFU.")


@tool(cli="ai explain", effect=READS, cost=MS, next=("aisp_ask", "aisp_benchmark_targets"))
def aisp_explain(p: ExplainParams, ctx: Context) -> Explanation:
    """Explain a term of the field: definition, how to measure it here, what helps, related tools and benchmarks."""
    from aisp_mcp.assist.ask.answers import explain

    return explain(p.query, ctx)
