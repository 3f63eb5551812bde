"""Chapters, and with ?chapter= or ?q= their variants with last verdicts and expectations."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from aisp_mcp.front.dashboard.asked import Asked
from aisp_mcp.store.records.verdict_row import VerdictFilter, VerdictRow
from aisp_mcp.suites.expectation_records import Expectation
from aisp_mcp.suites.records import Target


def build(asked: Asked) -> dict[str, Any]:
    from aisp_mcp.suites.discovery import find_targets, full_name

    roots = asked.ctx.bench_roots([asked.bench_root] if asked.bench_root else None)
    word, only = asked.word("q").casefold(), asked.word("chapter")
    verdicts: dict[str, list[VerdictRow]] = defaultdict(list)
    for row in asked.ctx.store.latest_verdicts(VerdictFilter(), asked.ctx.sees):
        verdicts[row.target].append(row)
    chapters: dict[str, list[tuple[Target, list[dict[str, Any]]]]] = defaultdict(list)
    targets = [target for target in find_targets(roots) if only in ("", target.chapter)]
    expected = _expected(targets if only or word else [])
    for target in targets:
        variants: list[dict[str, Any]] = [
            {"name": name, "variant": one, "verdicts": verdicts.get(name, ()), "expected": expected.get(name, ())}
            for one in target.variants
            if (name := full_name(target, one))
        ]
        if word in f"{target.name} {target.summary} {' '.join(one['name'] for one in variants)}".casefold():
            chapters[target.chapter].append((target, variants))
    shown = {only: chapters.get(only, [])} if only else dict(chapters) if word else {}
    lines = [] if shown else [_line(name, found) for name, found in chapters.items()]
    return {"roots": roots, "chapters": shown, "lines": lines, "only": only}


def _line(name: str, found: list[tuple[Target, list[dict[str, Any]]]]) -> dict[str, Any]:
    """A chapter in a row: how many targets and variants, and how many of those have which last verdict."""
    variants = [one for _, many in found for one in many]
    last = Counter(one["verdicts"][0].verdict for one in variants if one["verdicts"])
    return {"name": name, "targets": len(found), "variants": len(variants), "last": last}


def _expected(targets: list[Target]) -> dict[str, list[Expectation]]:
    """By candidate. A file that cannot be read is named in the page's error."""
    from aisp_mcp.suites import expectations

    found: dict[str, list[Expectation]] = defaultdict(list)
    for one in expectations.load(targets):
        found[one.candidate].append(one)
    return found
