"""The table of targets in the README of each chapter and lab: from docstrings and expect.yaml, between two markers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from aisp_mcp.suites import discovery as suites
from aisp_mcp.suites import expectations
from aisp_mcp.suites.records import Expectation, Target

BEGIN, END = "<!-- Targets: written by tools/gen.py -->", "<!-- End of targets -->"
_REGION = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
_HEAD = ("| target or variant | what it does | expected on a CPU | expected on a GPU |", "| --- | --- | --- | --- |")


def pages(root: Path) -> dict[str, str]:
    """Return the README files below benchmarks/ and labs/ that contain the markers, by path from the root."""
    targets = suites.find_targets([path for name in ("benchmarks", "labs") if (path := root / name).is_dir()])
    entries: dict[str, list[Expectation]] = {}
    for entry in expectations.load(targets):
        entries.setdefault(entry.candidate, []).append(entry)
    chapters: dict[Path, list[Target]] = {}
    for target in targets:
        chapters.setdefault(Path(target.path).with_name("README.md"), []).append(target)
    pages = {}
    for path, group in chapters.items():
        text = path.read_text("utf-8") if path.is_file() else ""
        if BEGIN in text:
            table = "\n".join([BEGIN, *_table(group, entries), END])
            pages[path.relative_to(root.resolve()).as_posix()] = _REGION.sub(lambda _, t=table: t, text)  # type: ignore[misc]
    return pages


def _table(targets: list[Target], entries: dict[str, list[Expectation]]) -> Iterator[str]:
    yield from _HEAD
    for target in targets:
        yield f"| **`{target.name}`** | baseline: {_cell(target.summary)} | | |"
        for variant in target.variants:
            full = suites.full_name(target, variant)
            cpu, gpu = (
                [entry for entry in entries.get(full, []) if _on_cpu(entry) == on_cpu] for on_cpu in (True, False)
            )
            name = f"`{full}`" if variant.name else f"`{full}`, plain"
            yield f"| {name} | {_cell(variant.summary)} | {_expected(cpu)} | {_expected(gpu)} |"


def _on_cpu(entry: Expectation) -> bool:
    return "cpu" in entry.device.lower().split()


def _expected(entries: list[Expectation]) -> str:
    """Such as `faster 4–12x`; device classes other than cpu and cuda are named."""
    return "; ".join(_expectation(entry) for entry in entries) or "not run"


def _expectation(entry: Expectation) -> str:
    device = "" if entry.device in ("cpu", "cuda") else f"{entry.device}: "
    bounds = f" {entry.range[0]:g}–{entry.range[1]:g}x" if entry.range else ""
    open_ended = ", not graded" if entry.informational else ""
    return f"{device}{entry.direction}{bounds}{open_ended}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
