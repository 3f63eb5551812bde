"""Result files of other tools as evidence: read them, compare two, list them over time."""

from __future__ import annotations

from pydantic import Field

from aisp_mcp.runs.imports.records import ImportComparison, Imported, Imports
from aisp_mcp.server.context import Context
from aisp_mcp.server.registry import READS, WRITES, ReadingParams, S, tool


class ImportParams(ReadingParams):
    file: str = Field(
        min_length=1,
        max_length=4096,
        description="A result file of hyperfine, pytest-benchmark, pyperf, asv, google-benchmark, nvbench, vLLM, "
        "SGLang, InferenceMAX, GuideLLM, AIPerf, llama-bench or MLPerf.",
    )
    name: str | None = Field(default=None, min_length=1, max_length=100, description="Name for later; default: file's.")


@tool(cli="bench import", effect=WRITES, cost=S, next=("aisp_benchmark_compare_imports", "aisp_benchmark_imports"))
def aisp_benchmark_import(p: ImportParams, ctx: Context) -> Imported:
    """Store a result file of another benchmark tool as measured elsewhere; it never becomes a verdict."""
    from aisp_mcp.runs.imports import reading
    from aisp_mcp.server.text.numbers import rounded

    imported = reading.read(p.file, p.name, ctx.clock())
    ctx.store.save_import(imported, ctx.principal)
    return rounded(reading.brief(imported))


class CompareImportsParams(ReadingParams):
    baseline: str = Field(min_length=1, max_length=4096, description="Id or label of an import, or a result file.")
    candidate: str = Field(min_length=1, max_length=4096)
    limit: int = Field(default=20, ge=1, le=1000, description="Differences at most, the clearest first.")


@tool(cli="bench compare-imports", effect=READS, cost=S, next=("aisp_benchmark_import", "aisp_benchmark_commands"))
def aisp_benchmark_compare_imports(p: CompareImportsParams, ctx: Context) -> ImportComparison:
    """Compare two result files of other tools: bootstrap interval if both have samples, otherwise what is missing."""
    from aisp_mcp.runs.imports import comparing, reading
    from aisp_mcp.server.text.numbers import rounded

    comparison = comparing.compare(reading.find(ctx, p.baseline), reading.find(ctx, p.candidate))
    return rounded(comparison.model_copy(update={"differences": comparison.differences[: p.limit]}))


class ImportsParams(ReadingParams):
    name: str | None = Field(default=None, max_length=300, description="History of the figures that contain this.")
    limit: int = Field(default=20, ge=1, le=200)


@tool(cli="bench imports", effect=READS, cost=S, next=("aisp_benchmark_compare_imports",))
def aisp_benchmark_imports(p: ImportsParams, ctx: Context) -> Imports:
    """List imported result files, newest first; with a name, the values of its figures over time."""
    from aisp_mcp.runs.imports import reading
    from aisp_mcp.server.text.numbers import rounded

    imports = reading.stored(ctx)
    history = reading.histories(imports, p.name, p.limit) if p.name else []
    hint = None
    if not imports:
        hint = "Nothing is imported yet: aisp bench import FILE."
    elif p.name and not history:
        hint = "No figure contains that text; without a name every import is listed."
    shown = [] if p.name else [reading.brief(each, lines=3) for each in imports[: p.limit]]
    return rounded(Imports(imports=shown, history=history, hint=hint))
