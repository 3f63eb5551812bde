"""Runs as files: a report for people, an export for programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from aisp_mcp.errors import UsageError
from aisp_mcp.records import Record
from aisp_mcp.server.context import Context
from aisp_mcp.server.files import Written
from aisp_mcp.server.registry import WRITES, ReadingParams, S, tool
from aisp_mcp.store.records.run import Run

if TYPE_CHECKING:
    from aisp_mcp.runs.export.outcomes import Row
    from aisp_mcp.runs.export.tables import Sample

_SUFFIX = {"markdown": "md", "comment": "md", "junit": "xml", "badge": "svg"}
_NAMES = {"csv": "results", "json": "results", "html": "report", "pdf": "report", "markdown": "report"}


class ExportParams(ReadingParams):
    run_id: str = Field(max_length=200)
    to: str | None = Field(default=None, description="Under an --allow-write folder.")
    format: Literal["csv", "json", "html", "pdf", "markdown", "junit", "badge", "comment"] = "csv"
    samples: bool = Field(default=False, description="Every timed call.")
    inconclusive: Literal["skip", "fail"] = Field(default="skip", description="In JUnit and badge.")


class Files(Record):
    """Written files, the requested one first."""

    files: list[Written]


@tool(
    cli="bench export",
    effect=WRITES,
    cost=S,
    next=("aisp_benchmark_compare_runs",),
    aliases={
        "aisp_benchmark_report": {"format": "html"},
        "aisp_export_csv": {"format": "csv"},
        "aisp_export_html": {"format": "html"},
        "aisp_export_pdf": {"format": "pdf"},
    },
    listed="default",
)
def aisp_benchmark_export(p: ExportParams, ctx: Context) -> Files:
    """Write a run to a file: report, table, JUnit XML, badge or pull request comment."""
    from aisp_mcp.runs.export import tables

    if p.samples and p.format not in ("csv", "json"):
        raise UsageError(
            "NO_SAMPLES_IN_FORMAT", f"Format {p.format} cannot contain samples.", "Use format csv or json."
        )
    run = ctx.store.run(Run, p.run_id, ctx.sees)
    raw_samples = tables.read_samples(run, ctx.store.run_dir(run.id)) if p.samples else None
    written = [_write(run, p, ctx, _data(run, p, raw_samples))]
    if raw_samples is not None and p.format == "csv":
        written.append(_samples(written[0], tables.samples_csv(run, raw_samples)))
    return Files(files=written)


def _write(run: Run, p: ExportParams, ctx: Context, data: bytes) -> Written:
    from aisp_mcp.server import files

    name = f"{_NAMES.get(p.format, p.format)}.{_SUFFIX.get(p.format, p.format)}"
    return files.write(files.destination(p.to, ctx.store.run_dir(run.id) / name, ctx.allow_write), data)


def _data(run: Run, p: ExportParams, raw_samples: list[Sample] | None) -> bytes:
    from aisp_mcp.runs.export import badge, comment, html, junit, markdown, outcomes, pdf, tables

    about = {"run_id": run.id, "preset": run.preset, "profile": run.profile}
    makers: dict[str, Callable[[], bytes]] = {
        "csv": lambda: tables.to_csv(run),
        "json": lambda: tables.to_json(run, raw_samples),
        "html": lambda: html.to_html(run),
        "pdf": lambda: pdf.to_pdf(html.to_html(run)),
        "markdown": lambda: markdown.to_markdown(run),
        "comment": lambda: comment.run_comment(run).encode(),
        "junit": lambda: junit.to_junit(rows(), f"run {run.id}", run.created_at, run.seconds, about),
        "badge": lambda: badge.to_badge(rows()),
    }

    def rows() -> list[Row]:
        return outcomes.of_run(run, p.inconclusive == "fail")

    return makers[p.format]()


def _samples(written: Written, data: bytes) -> Written:
    """Write samples to a separate file next to the results, because they have their own columns."""
    from pathlib import Path

    from aisp_mcp.server import files

    results = Path(written.path)
    return files.write(results.with_name(f"{results.stem}.samples.csv"), data)
