"""Find the tool that answers a question."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from aisp_mcp.records import Params, Record
from aisp_mcp.server.context import Context
from aisp_mcp.server.dispatch import lean_schema
from aisp_mcp.server.registry import ANY, MIN, MS, READS, Call, tool


class Suggestion(Record):
    """One matching tool. If missing is empty, args is a complete call."""

    tool: str
    command: str = Field(description="The same call on the command line.")
    description: str
    reason: str = Field(description="Words that match the question, and where they occur in the tool.")
    args: dict[str, Any]
    missing: list[str] = Field(description="Required arguments the question does not state.")
    lacking: list[str] = Field(default_factory=list, description="Needs of the tool that this machine does not meet.")
    parameters: dict[str, Any] = Field(description="The tool's arguments as JSON Schema.")


class Suggestions(Record):
    """Best first."""

    suggestions: list[Suggestion]
    hint: str | None = Field(default=None, description="What to do if nothing matches.")


class SuggestParams(Params):
    query: str = Field(min_length=1, max_length=500, description="What you want to know.")
    limit: int = Field(default=3, ge=1, le=20)


@tool(cli="suggest tools", effect=READS, cost=MS, next=("aisp_triage",), listed="lite")
def aisp_suggest_tools(p: SuggestParams, ctx: Context) -> Suggestions:
    """Find tools that answer a question, each with its reason and ready arguments.

    The search covers names, commands, descriptions, arguments and results of the tools, and everyday words for what
    they answer; other words of the question have no effect. Arguments are filled in only if the question states them.
    """
    from aisp_mcp.assist.guide import suggest

    suggestions = [
        Suggestion(
            tool=match.tool.name,
            command=f"aisp {match.tool.cli}",
            description=match.tool.summary,
            reason=match.reason,
            args=match.args,
            missing=match.missing,
            lacking=match.lacking,
            parameters=lean_schema(match.tool),
        )
        for match in suggest.search(p.query, p.limit)
        if ctx.tools is None or match.tool.name in ctx.tools
    ]
    hint = (
        None
        if suggestions
        else "No tool answers this question: they measure and plan speed, memory, energy and cost, not how well a "
        "model learns. Name such a subject, as GPU, benchmark, job, disk, report; or start with aisp_triage."
    )
    return Suggestions(suggestions=suggestions, hint=hint)


class CallParams(Params):
    tool: str
    args: dict[str, Any] = Field(default_factory=dict)
    slurm: dict[str, Any] | None = Field(default=None, description="nodes, gpus, partition, account, time.")
    executor: str | None = Field(default=None, description="ssh://host or kubernetes://namespace")


class Called(Record):
    """The result of the tool that was called."""


@tool(cli="call", effect=ANY, cost=MIN, next=("aisp_suggest_tools",), listed="lite")
def aisp_call_tool(p: CallParams, ctx: Context) -> Called | Call:
    """Call any tool by name, listed or not; the answer is that tool's own.

    A server lists few of its tools to a model, because each listed tool costs context; this one reaches the others.
    """
    from aisp_mcp.jobs.executors.placement import slurm_variables

    where = {} if p.executor is None else {"AISP_EXECUTOR": p.executor}
    return Call(p.tool, p.args, where if p.slurm is None else slurm_variables(p.slurm))
