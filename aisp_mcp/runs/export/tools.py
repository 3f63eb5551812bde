"""Runs as files: a report for people, an export for programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from pydantic import Field

from aisp_mcp.errors import UsageError
from aisp_mcp.records import Record
from aisp_mcp.server.context import Context
from aisp_mcp.server.files import Written
from aisp_mcp.server.registry import WRITES, ReadingParams, S, tool
from aisp_mcp.store.records.run import Run

_SUFFIX = {"markdown": "md", "comment": "md", "junit": "xml", "badge": "svg"}
_NAMES = {"junit": "junit", "badge": "badge", "comment": "comment"}


class FileParams(ReadingParams):
    run_id: str = Field(max_length=200)
    path: str | None = Field(default=None, description="Under an --allow-write folder; default: the run's.")


class ReportParams(FileParams):
    format: Literal["html", "markdown", "pdf"] = "html"


class ExportParams(FileParams):
    format: Literal["csv", "json", "markdown", "junit", "badge", "comment"] = "csv"
    samples: bool = Field(default=False, description="Also every timed call.")
    inconclusive: Literal["skip", "fail"] = Field(default="skip", description="In JUnit and badge.")


class Files(Record):
    """Written files, the requested one first."""

    files: list[Written]


def _write(run: Run, p: FileParams, ctx: Context, kind: str, name: str, data: bytes) -> Written:
    from aisp_mcp.server import files

    default = ctx.store.run_dir(run.id) / f"{name}.{_SUFFIX.get(kind, kind)}"
    path = files.destination(p.path, default, ctx.allow_write)
    return files.write(path, data)


@tool(cli="bench report", effect=WRITES, cost=S, next=("aisp_benchmark_export",), listed="default")
def aisp_benchmark_report(p: ReportParams, ctx: Context) -> Files:
    """Write a run's report with chart, verdicts, evidence and environment: one self-contained file."""
    from aisp_mcp.runs.export import html, markdown, pdf

    run = ctx.store.run(Run, p.run_id, ctx.sees)
    data = markdown.to_markdown(run) if p.format == "markdown" else html.to_html(run)
    if p.format == "pdf":
        data = pdf.to_pdf(data)
    return Files(files=[_write(run, p, ctx, p.format, "report", data)])


@tool(cli="bench export", effect=WRITES, cost=S, next=("aisp_benchmark_report",))
def aisp_benchmark_export(p: ExportParams, ctx: Context) -> Files:
    """Write a run's results with every column, or as JUnit XML, badge or pull request comment.

    With samples: also every timed call, from the checked raw logs.
    """
    from aisp_mcp.runs.export import tables

    if p.samples and p.format not in ("csv", "json"):
        raise UsageError(
            "NO_SAMPLES_IN_FORMAT", f"Format {p.format} cannot contain samples.", "Use format csv or json."
        )
    run = ctx.store.run(Run, p.run_id, ctx.sees)
    raw_samples = tables.read_samples(run, ctx.store.run_dir(run.id)) if p.samples else None
    if p.format == "json":
        return Files(files=[_write(run, p, ctx, p.format, "results", tables.to_json(run, raw_samples))])
    written = [_write(run, p, ctx, p.format, _NAMES.get(p.format, "results"), _data(run, p))]
    if raw_samples is not None:
        written.append(_samples(written[0], tables.samples_csv(run, raw_samples)))
    return Files(files=written)


def _data(run: Run, p: ExportParams) -> bytes:
    """The run in a format without samples."""
    from aisp_mcp.runs.export import badge, comment, junit, markdown, outcomes, tables

    rows = outcomes.of_run(run, p.inconclusive == "fail")
    about = {"run_id": run.id, "preset": run.preset, "profile": run.profile}
    makers: dict[str, Callable[[], bytes]] = {
        "csv": lambda: tables.to_csv(run),
        "markdown": lambda: markdown.to_markdown(run),
        "comment": lambda: comment.run_comment(run).encode(),
        "junit": lambda: junit.to_junit(rows, f"run {run.id}", run.created_at, run.seconds, about),
        "badge": lambda: badge.to_badge(rows),
    }
    return makers[p.format]()


def _samples(written: Written, data: bytes) -> Written:
    """Write samples to a separate file next to the results, because they have their own columns."""
    from pathlib import Path

    from aisp_mcp.server import files

    results = Path(written.path)
    return files.write(results.with_name(f"{results.stem}.samples.csv"), data)


@tool(cli="export csv", effect=WRITES, cost=S, next=("aisp_export_html", "aisp_benchmark_export"))
def aisp_export_csv(p: FileParams, ctx: Context) -> Files:
    """Write a run as CSV: a row per comparison, skip and failure, every column."""
    files: Files = aisp_benchmark_export(ExportParams(run_id=p.run_id, path=p.path, format="csv"), ctx)
    return files


@tool(cli="export html", effect=WRITES, cost=S, next=("aisp_export_pdf", "aisp_benchmark_report"))
def aisp_export_html(p: FileParams, ctx: Context) -> Files:
    """Write a run as one self-contained HTML page with chart, verdicts, evidence and environment."""
    files: Files = aisp_benchmark_report(ReportParams(run_id=p.run_id, path=p.path, format="html"), ctx)
    return files


@tool(cli="export pdf", effect=WRITES, cost=S, next=("aisp_export_html", "aisp_benchmark_report"))
def aisp_export_pdf(p: FileParams, ctx: Context) -> Files:
    """Write a run's report as PDF, printed by a Chromium browser of this machine."""
    files: Files = aisp_benchmark_report(ReportParams(run_id=p.run_id, path=p.path, format="pdf"), ctx)
    return files
