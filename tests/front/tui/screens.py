"""The screen as text, a store with fixed contents, and a way to wait for what threads bring."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from textual.pilot import Pilot

from aisp_mcp.front.tui.app import Tui
from aisp_mcp.front.tui.source import ListSource
from aisp_mcp.server.context import Context
from aisp_mcp.settings import Settings
from aisp_mcp.store.records.job import Job, JobState
from aisp_mcp.store.records.run import Run

NOW = 1.7e9
CELL, LINE = 12.2, 24.4  # pixels of a cell in textual's SVG
HOSTILE = "ch07:<b>[red]\x1b[31m\u202e"
BENCH = '''"""Sum of [bold]rows[/]."""
from aisp_mcp.bench import Benchmark


class Sum(Benchmark):
    def inputs(self, rng):
        return {"a": rng.randn(4, 4)}

    def run(self, a):
        return a.sum(1)
'''


def screen(app: Tui) -> str:
    """Text of the screen line by line, without colours; read from textual's own picture of it."""
    lines: dict[int, dict[int, str]] = {}
    picture = ElementTree.fromstring(app.export_screenshot())
    for item in picture.iter("{http://www.w3.org/2000/svg}text"):
        if "clip-path" in item.attrib and item.text:
            row = round(float(item.attrib["y"]) / LINE)
            lines.setdefault(row, {})[round(float(item.attrib["x"]) / CELL)] = item.text.replace("\xa0", " ")
    return "".join(f"{_joined(lines[row])}\n" for row in sorted(lines))


def _joined(parts: dict[int, str]) -> str:
    text = ""
    for column, part in sorted(parts.items()):
        text = text.ljust(column) + part
    return text.rstrip()


async def until(pilot: Pilot[Any], seen: Callable[[], object]) -> None:
    """Let the program go on until this is true; the test's own time limit ends it."""
    while not seen():
        await pilot.pause()


def source(home: Path, root: Path) -> ListSource:
    """Two jobs that have ended, three verdicts, one target; an hour passes nowhere."""
    chapter = root / "ch07"
    chapter.mkdir(parents=True)
    (chapter / "baseline_row_sum.py").write_text(BENCH)
    (chapter / "optimized_row_sum.py").write_text('"""Plain."""\ndef run(a):\n    return a.sum(1)\n')
    (chapter / "optimized_row_sum_tiled.py").write_text('"""Tiles."""\ndef run(a):\n    return a.sum(1)\n')
    values = {"AISP_HOME": str(home), "AISP_BENCH_ROOT": str(root), "AISP_TOOL_MODULES": "front_tools"}
    settings = Settings.from_env(values)
    ctx = Context(settings=settings, clock=lambda: NOW)
    for number, state in enumerate((JobState.CANCELLED, JobState.FAILED)):
        _ended(ctx, f"j_{number:022d}", state, NOW - 3600 / (number + 1))
    for number, (target, verdict, ratio) in enumerate(
        [(HOSTILE, "invalid", None), ("ch07:row_sum", "inconclusive", 1.02), ("ch07:row_sum", "faster", 2.5)]
    ):
        body = {"target": target, "candidate": "tiled" if ratio == 2.5 else "", "verdict": verdict, "ratio": ratio}
        body |= {"sentence": f"{verdict}: as measured", "isolation": "L1", "replicates": 5, "noise_floor": 0.012}
        body |= {"interval": {"low": 0.9 * ratio, "high": 1.1 * ratio}} if ratio else {}
        run = {"id": f"r_{number:022d}", "created_at": NOW - 7200, "preset": "default", "profile": "portable"}
        run |= {"environment": {"gpus": [{"name": "NVIDIA H200"}]}, "comparisons": [body]}
        ctx.store.save_run(Run.model_validate(run), None)
    return ListSource(ctx)


def _ended(ctx: Context, job_id: str, state: JobState, at: float) -> None:
    folder = str(ctx.settings.home / "runs" / job_id)
    job = Job(
        id=job_id, tool="aisp_run_benchmarks", params={}, state=JobState.QUEUED, timeout_s=9, created_at=at,
        run_dir=folder,
    )  # fmt: skip
    ctx.store.insert_job(job, python="", cwd="", env={})
    ctx.store.transition(job_id, JobState.CANCELLED, reason=f"{state.value}: [red]because\x1b[31m")
