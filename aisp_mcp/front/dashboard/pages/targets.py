"""Chapters; with ?chapter= or ?q= their variants with the latest verdicts and expectations."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import chain
from typing import Any

from aisp_mcp.front.dashboard import figures
from aisp_mcp.front.dashboard.request import PageRequest
from aisp_mcp.front.dashboard.words import count, ordered, summed
from aisp_mcp.server.charts import bars
from aisp_mcp.server.charts.drawing import to_svg
from aisp_mcp.store.records.verdict_row import RunKind, VerdictFilter, VerdictRow
from aisp_mcp.suites.records import Expectation, Target

MOST_OWN = 50  # functions shown, newest first


def build(request: PageRequest) -> dict[str, Any]:
    from aisp_mcp.runs.leaderboards import in_order
    from aisp_mcp.suites.discovery import find_targets, full_name, topic

    roots = request.ctx.bench_roots([request.bench_root] if request.bench_root else None)
    query, chapter = request.word("q").casefold(), request.word("chapter")
    verdicts: dict[str, list[VerdictRow]] = defaultdict(list)
    for row in request.ctx.store.latest_verdicts(VerdictFilter(), request.ctx.sees):
        verdicts[row.target].append(row)
    chapters: dict[str, list[tuple[Target, list[dict[str, Any]]]]] = defaultdict(list)
    targets = [target for target in find_targets(roots) if chapter in ("", target.chapter)]
    expected = _expected(targets if chapter or query else [])
    for target in targets:
        variants: list[dict[str, Any]] = [
            {
                "name": name,
                "variant": variant,
                "verdicts": in_order(verdicts.get(name, ())),
                "expected": expected.get(name, ()),
            }
            for variant in target.variants
            if (name := full_name(target, variant))
        ]
        names = " ".join(variant["name"] for variant in variants)
        if query in f"{target.name} {target.summary} {names}".casefold():
            chapters[target.chapter].append((target, variants))
    shown = {chapter: chapters.get(chapter, [])} if chapter else dict(chapters) if query else {}
    rows = []
    if not shown:
        rows = [
            _chapter_row(name, entries) | {"topic": topic(roots, entries[0][0])} for name, entries in chapters.items()
        ]
    variants = [variant for entries in chapters.values() for _, entry in entries for variant in entry]
    last = ordered(Counter(variant["verdicts"][0].verdict for variant in variants if variant["verdicts"]))
    shared: dict[str, Any] = {"lead": _lead(variants, last), "counts": last, "drawing": figures.of_counts(last)}
    own = [row for row in chain(*verdicts.values()) if row.kind is RunKind.FUNCTIONS and query in row.target.casefold()]
    own = sorted(own, key=lambda row: -row.seq)[:MOST_OWN] if not chapter else []
    if own:
        shared["lead"] += f" {count(len({row.benchmark for row in own}), 'function')} of your own judged."
    return {"roots": roots, "chapters": shown, "rows": rows, "chapter": chapter, "own": own, **shared}


def _lead(variants: list[dict[str, Any]], last: dict[str, int]) -> str:
    """The number of measured variants, and their latest verdicts."""
    measured = f"{sum(last.values()):,} of {count(len(variants), 'variant')} measured"
    return f"{measured}: {summed(last)}." if last else f"{measured}."


def _chapter_row(name: str, entries: list[tuple[Target, list[dict[str, Any]]]]) -> dict[str, Any]:
    """Numbers of targets and variants of a chapter, and of variants by their latest verdict."""
    variants = [variant for _, target_variants in entries for variant in target_variants]
    last = ordered(Counter(variant["verdicts"][0].verdict for variant in variants if variant["verdicts"]))
    left = len(variants) - sum(last.values())
    parts = [*((verdict, number, verdict) for verdict, number in last.items()), ("not measured", left, bars.UNKNOWN)]
    split = to_svg(bars.stack(f"Latest verdicts of {name}", parts))
    return {"name": name, "targets": len(entries), "variants": len(variants), "last": last, "split": split}


def _expected(targets: list[Target]) -> dict[str, list[Expectation]]:
    """Expectations by candidate. Raises AispError that names an unreadable file."""
    from aisp_mcp.suites import expectations

    by_candidate: dict[str, list[Expectation]] = defaultdict(list)
    for expectation in expectations.load(targets):
        by_candidate[expectation.candidate].append(expectation)
    return by_candidate
