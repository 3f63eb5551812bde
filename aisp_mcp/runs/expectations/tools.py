"""Expectations of candidates: list them, grade a run against them, write proof, show the coverage of the suites."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from pydantic import Field

from aisp_mcp.records import Params, Record
from aisp_mcp.runs.expectations.accepting import Rewritten
from aisp_mcp.server.context import Context
from aisp_mcp.server.files import Written
from aisp_mcp.server.registry import READS, WRITES, S, tool
from aisp_mcp.store.records.run import Run
from aisp_mcp.suites.coverage import Covered
from aisp_mcp.suites.records import BenchRoots, Expectation, Grade


class ExpectationsParams(Params):
    hardware: str | None = Field(default=None, max_length=100, description="Such as H200, cuda, cpu amx_bf16.")
    min_speedup: float | None = Field(default=None, gt=0, le=1e6, description="Expected at least, such as 1.05.")
    run_id: str | None = Field(default=None, max_length=200, description="Grade this run.")
    bench_root: BenchRoots = None


class Expectations(Record):
    """Matching entries; with a run, its grades instead."""

    sentence: str
    entries: list[Expectation]
    grades: list[Grade]
    counts: dict[str, int] = Field(description="Candidates by mark, or entries by direction.")
    unclaimed: list[str] = Field(description="Entries that name no candidate.")


@tool(cli="bench expectations", effect=READS, cost=S, next=("aisp_run_benchmarks", "aisp_benchmark_proof"))
def aisp_benchmark_expectations(p: ExpectationsParams, ctx: Context) -> Expectations:
    """List what each candidate should do per class of device, or grade a run against it."""
    from aisp_mcp.suites import expectations
    from aisp_mcp.suites.discovery import find_targets

    targets = find_targets(ctx.bench_roots(p.bench_root))
    entries, unclaimed = expectations.load(targets), expectations.unclaimed(targets)
    if p.run_id is not None:
        grades = expectations.grade(ctx.store.run(Run, p.run_id, ctx.sees), entries)
        counts = Counter[str](grade.mark for grade in grades)
        sentence = f"Of {len(grades)} verdicts: {_counted(counts)}."
        return Expectations(sentence=sentence, entries=[], grades=grades, counts=counts, unclaimed=unclaimed)
    if p.hardware is not None:
        entries = list(expectations.fitting(entries, expectations.named(p.hardware)).values())
    if p.min_speedup is not None:
        entries = [entry for entry in entries if entry.range and entry.range[0] >= p.min_speedup]
    counts = Counter[str](entry.direction for entry in entries)
    candidates = len({entry.candidate for entry in entries})
    sentence = f"Of {len(entries)} entries for {candidates} candidates: {_counted(counts)}."
    return Expectations(sentence=sentence, entries=entries, grades=[], counts=counts, unclaimed=unclaimed)


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counts.items()) or "none"


class ProofParams(Params):
    run_id: str = Field(max_length=200)
    to: str | None = Field(default=None, description="Under an --allow-write folder.")
    accept_regressions: bool = Field(default=False, description="Rewrite expect.yaml.")
    bench_root: BenchRoots = None


class Proof(Record):
    """proof_of_benefit.csv and the rewritten expectations."""

    file: Written
    counts: dict[str, int] = Field(description="Candidates by mark.")
    contradicted: list[Grade]
    rewritten: list[Rewritten]


@tool(cli="bench proof", effect=WRITES, cost=S, next=("aisp_benchmark_expectations",))
def aisp_benchmark_proof(p: ProofParams, ctx: Context) -> Proof:
    """Write proof_of_benefit.csv: every verdict of a run with its expectation, contradictions marked."""
    from aisp_mcp.runs.expectations import accepting
    from aisp_mcp.runs.export import tables
    from aisp_mcp.server import files

    run = ctx.store.run(Run, p.run_id, ctx.sees)
    grades, rewritten = accepting.graded(ctx, run, p.bench_root, p.accept_regressions)
    path = files.destination(p.to, ctx.store.run_dir(run.id) / "proof_of_benefit.csv", ctx.allow_write)
    return Proof(
        file=files.write(path, tables.proof_csv(run, grades)),
        counts=Counter[str](grade.mark for grade in grades),
        contradicted=[grade for grade in grades if grade.mark == "contradicted"],
        rewritten=rewritten,
    )


class CoverageParams(Params):
    chapter: str | None = Field(default=None, max_length=200)
    bench_root: BenchRoots = None


class Coverage(Record):
    """One row per candidate, and counts by chapter."""

    sentence: str
    candidates: list[Covered]
    chapters: dict[str, int]
    without_expectation: int
    without_verdict: int


@tool(cli="bench coverage", effect=READS, cost=S, next=("aisp_run_benchmarks",))
def aisp_benchmark_coverage(p: CoverageParams, ctx: Context) -> Coverage:
    """List the chapter, goal, needs, expectations and last verdict per device of every candidate."""
    from aisp_mcp.suites import coverage

    rows = coverage.table(ctx, ctx.bench_roots(p.bench_root), p.chapter)
    counts: dict[str, int] = {}
    for row in rows:
        counts[row.chapter] = counts.get(row.chapter, 0) + 1
    silent = sum(not row.expected_on for row in rows)
    unmeasured = sum(not row.verdicts for row in rows)
    return Coverage(
        sentence=f"{len(rows)} candidates in {len(counts)} chapters: {silent} without an expectation, {unmeasured} "
        "without a verdict.",
        candidates=rows,
        chapters=counts,
        without_expectation=silent,
        without_verdict=unmeasured,
    )
