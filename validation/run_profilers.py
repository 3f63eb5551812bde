"""Record real profiles on NVIDIA GPUs through the tools, and compare every total with NVIDIA's own. Not a test.

    python validation/run_profilers.py --out FOLDER [--gpus 2] [--only nsys,ncu,...] [--budget SECONDS]

Prints one JSON document, which also is in FOLDER as report.json and is rewritten after each step: what was found, and
the differences (all should be 0). Next to it are the scrubbed artifacts, compressed, with the rows of `nsys stats`.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "profilers"), str(ROOT / "validation")]

import nsys_stats  # noqa: E402
from asking import ask  # noqa: E402
from profiled_programs import KERNEL, RANKS, TRAIN  # noqa: E402
from sweep import brute  # noqa: E402

from aisp_mcp.profile import digest, load  # noqa: E402
from aisp_mcp.profile.readers import ncu, snapshot  # noqa: E402
from aisp_mcp.profile.recording import find, record  # noqa: E402
from aisp_mcp.profile.timeline import summarize  # noqa: E402
from aisp_mcp.server.context import Context  # noqa: E402
from aisp_mcp.server.dispatch import load_catalog  # noqa: E402
from aisp_mcp.settings import Settings  # noqa: E402

TARGET = "ch07:row_sum"
PLANTED = "planted-5f2a9c77e1"


@dataclass
class Bench:
    """Workplace of the steps. kept: name in the output folder → file, compressed when written."""

    work: Path
    ctx: Context
    kept: dict[str, Path] = field(default_factory=dict)
    said: dict[str, str] = field(default_factory=dict)

    def call(self, tool: str, **args: Any) -> dict[str, Any]:
        """A tool's result, as a caller gets it."""
        return ask(self.ctx, tool, **args)

    def nsys_program(self) -> str:
        return find.program("nsys", self.ctx.settings.home / "tools")

    def with_stats(self, name: str | None, database: Path) -> dict[str, Any]:
        """Our tables against nsys stats; the export and NVIDIA's rows are kept under the name."""
        secret_left = record.holds(database, [*record.secrets(), PLANTED])
        record.scrub_database(database, [str(self.work)])  # where this script happened to work is nobody's business
        began = time.process_time()
        trace = load.load_trace(database)
        profile = summarize.profile(trace)
        spent = time.process_time() - began
        oracle = nsys_stats.ask(self.nsys_program(), database)
        if name is not None:
            self.kept[f"{name}.nsys.sqlite.gz"] = database
            self.said[f"{name}.nsys-stats.json.gz"] = json.dumps(oracle)
        assert profile.timeline is not None
        return {
            "nsys": trace.source.version,
            "bytes": database.stat().st_size,
            "read_seconds": round(spent, 3),
            "kernels": len(trace.gpu),
            "devices": len(profile.timeline.breakdown),
            "streams": len(profile.timeline.streams),
            "secret_left": secret_left,
            "differences": nsys_stats.differences(oracle, profile.timeline),
            "diagnostics": profile.diagnostics,
        }


def nsys_run(b: Bench) -> dict[str, Any]:
    """A training step with a CUDA graph, three streams and a Triton kernel."""
    answer = b.call("aisp_profile_nsys", command=[sys.executable, str(b.work / "train.py"), "8"])
    stats = b.with_stats("graphs_streams", Path(answer["database"]))
    return {**stats, "insights": answer["summary"]["insights"], "window": answer["summary"]["window"]["definition"]}


def ncu_run(b: Bench) -> dict[str, Any]:
    """A Triton kernel and a product with all counters; their pages by the program and by NVIDIA's module."""
    command = [sys.executable, str(b.work / "kernel.py")]
    answer = b.call("aisp_profile_ncu", command=command, set="full", kernel="scale_add|nvjet|gemm", launch_count=3)
    files = {Path(name).name: Path(name) for name in answer["files"]}
    b.kept["triton.ncu-raw.csv.gz"] = files["report.raw.csv"]
    b.kept["triton.ncu-details.csv.gz"] = files["report.details.csv"]
    profile = ncu.read(files["report.raw.csv"], files["report.details.csv"])
    row: dict[str, Any] = {
        "kernels": answer["summary"]["kernels"],
        "metrics": [len(k.metrics) for k in profile.kernels],
        "rules": [len(k.rules) for k in profile.kernels],
        "insights": answer["summary"]["insights"],
        "roofline": b.call("aisp_profile_roofline", profile=str(files["report.raw.csv"]))["points"],
    }
    report = files.get("report.ncu-rep")
    if report is not None:
        b.kept["triton.ncu-rep.gz"] = report
        row["module"] = _module(profile, report, b.work)
    return row


def _module(profile: Any, report: Path, folder: Path) -> Any:
    try:
        exact = record.read_ncu(None, report, folder)
    except Exception as error:
        return str(error)
    worst = [
        abs(a.metrics[n] - b.metrics[n]) / max(abs(b.metrics[n]), 1.0)
        for a, b in zip(profile.kernels, exact.kernels, strict=True)
        for n in a.metrics.keys() & b.metrics.keys()
    ]
    return {"compared": len(worst), "largest_relative_difference": max(worst, default=None)}


def torch_run(b: Bench) -> dict[str, Any]:
    """A trace of the training step; the breakdown against a sweep over all edges."""
    answer = b.call("aisp_profile_torch", script=str(b.work / "train.py"), args=["4"])
    b.kept["graphs_streams.kineto.json.gz"] = Path(answer["trace"])
    return {"cuda": answer["cuda"], "operators": answer["operators"][:3], **_against_sweep(Path(answer["trace"]))}


def _against_sweep(path: Path) -> dict[str, Any]:
    trace = load.load_trace(path)
    table = summarize.profile(trace).timeline
    assert table is not None
    row, expected = table.breakdown[0], brute(trace)
    mine = {
        "compute": row.compute_ns,
        "comm": row.communication_ns,
        "memory": row.memory_ns,
        "exposed_comm": row.exposed_communication_ns,
        "idle": row.idle_ns,
    }
    return {
        "events": len(trace.gpu) + len(trace.api) + len(trace.operators),
        "bytes": path.stat().st_size,
        "breakdown_ns": mine,
        "difference_to_sweep_ns": {name: ns - expected[name] for name, ns in mine.items()},
    }


def memory_run(b: Bench) -> dict[str, Any]:
    """The allocator's history of the training step, against torch's own peak."""
    answer = b.call("aisp_profile_memory", script=str(b.work / "train.py"), args=["2"])
    output = (Path(answer["snapshot"]).parent / "output.txt").read_text()
    memory = snapshot.read(Path(answer["snapshot"])).memory[0]
    b.said["two_steps.memory.json.gz"] = Path(answer["snapshot"]).read_text().replace(f"{b.work}/", "")
    return {
        "events": memory.events,
        "peak_bytes": memory.peak_bytes,
        "torch_peak_bytes": int(next(line for line in output.splitlines() if line.startswith("PEAK")).split()[1]),
        "growth": memory.growth,
        "steps_from": memory.steps_from,
        "top": memory.at_peak[0].model_dump() if memory.at_peak else None,
    }


def target_run(b: Bench) -> dict[str, Any]:
    """A benchmark by its name under each profiler, and both its sides compared."""
    before = b.call("aisp_profile_nsys", target=TARGET, side="baseline")
    after = b.call("aisp_profile_nsys", target=TARGET, side="candidate")
    change = b.call("aisp_compare_nsys", a=before["database"], b=after["database"])
    counted = b.call("aisp_profile_ncu", target=TARGET, set="basic", launch_count=2)
    traced = b.call("aisp_profile_torch", target=TARGET)
    held = b.call("aisp_profile_memory", target=TARGET)
    return {
        "ran": [answer["ran"] for answer in (before, after, counted, traced, held)],
        "differences": b.with_stats(None, Path(after["database"]))["differences"],
        "verdict": [change["verdict"], change["ratio"], change.get("explained_by")],
        "kernels": [row["name"] for row in after["summary"]["rows"]],
        "ncu": counted["summary"]["kernels"],
        "trace": _against_sweep(Path(traced["trace"])),
        "peak_bytes": [memory["peak_bytes"] for memory in held["memory"]],
    }


def profile_run(b: Bench) -> dict[str, Any]:
    """A judged pair with profiled passes, and its place under the roofline."""
    answer = b.call("aisp_run_benchmarks", targets=["ch07:row_sum_tiled"], preset="quick", profile="minimal")
    rulings = [{k: row[k] for k in ("target", "verdict", "ratio", "isolation")} for row in answer["rulings"]]
    points = b.call("aisp_profile_roofline", run=answer["run_id"])
    return {"rulings": rulings, "passes": answer["profiles"]["passes"], "roofline": points}


def _torchrun(script: Path, *args: str) -> list[str]:
    return [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone", str(script), *args]


def ranks_nsys(b: Bench) -> dict[str, Any]:
    """Two ranks in one report: collectives, a sharded step, overlap per device."""
    answer = b.call("aisp_profile_nsys", command=_torchrun(b.work / "ranks.py"))
    database = Path(answer["database"])
    table = load.load(database).timeline
    assert table is not None
    communication = [k for k in table.kernels if k.kind == "communication"]
    return {
        **b.with_stats("two_ranks", database),
        "collectives": [[c.name, c.count, c.total_ns] for c in table.collectives],
        "communication_kernels": [[k.name[:80], k.count] for k in communication],
        "breakdown": [row.model_dump() for row in digest.breakdowns(load.load(database, "steady"))],
        "insights": answer["summary"]["insights"],
    }


def ranks_torch(b: Bench) -> dict[str, Any]:
    """The same step under torch.profiler, one trace per rank: sizes, bus bandwidth, exposure, the slower rank."""
    folder = b.work / "traces"
    folder.mkdir()
    done = subprocess.run(
        _torchrun(b.work / "ranks.py", str(folder)), capture_output=True, text=True, timeout=150, check=False
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-1500:])
    paths = [folder / f"rank{rank}.json" for rank in (0, 1)]
    answer = b.call("aisp_profile_hta", traces=[str(path) for path in paths])
    reports = []
    for rank, path in enumerate(paths):
        b.kept[f"rank{rank}.kineto.json.gz"] = path
        rows = load.load(path).timeline
        assert rows is not None
        sizes = [[c.name, c.count, c.bytes, c.ranks, c.dtype, c.busbw_bytes_per_s] for c in rows.collectives]
        reports.append({"collectives": sizes, **_against_sweep(path)})
    rates = [c[5] for report in reports for c in report["collectives"] if c[5]]
    return {
        "ranks": reports,
        "slowest": answer.get("slowest"),
        "breakdown": [rank["breakdown"] for rank in answer["ranks"]],
        "busbw_median": statistics.median(rates) if rates else None,
    }


SINGLE_GPU: dict[str, Callable[[Bench], dict[str, Any]]] = {
    "nsys": nsys_run, "ncu": ncu_run, "torch": torch_run, "memory": memory_run, "target": target_run,
    "profile": profile_run,
}  # fmt: skip
TWO: dict[str, Callable[[Bench], dict[str, Any]]] = {"nsys": ranks_nsys, "torch": ranks_torch}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--gpus", type=int, choices=(1, 2), default=1)
    parser.add_argument("--only")
    parser.add_argument("--budget", type=float, default=230, help="seconds after which no further step begins")
    options = parser.parse_args()
    steps = SINGLE_GPU if options.gpus == 1 else TWO
    os.environ["NCCL_NVLS_ENABLE"] = "0"  # multicast needs rights that a lent machine does not give
    os.environ["AISP_PLANTED_TOKEN"] = PLANTED  # must not be in what is kept
    with tempfile.TemporaryDirectory(prefix="aisp-profilers-", dir=Path.home()) as folder:
        bench = _bench(Path(folder))
        report: dict[str, Any] = {"date": time.strftime("%Y-%m-%d"), **_machine()}
        for name in options.only.split(",") if options.only else steps:
            late = time.monotonic() - _BEGAN > options.budget
            report[name] = {"skipped": "no time was left"} if late else _guarded(steps[name], bench)
            _write(options.out, report, bench)
    print(json.dumps(report, indent=1))
    return 0


_BEGAN = time.monotonic()


def _bench(work: Path) -> Bench:
    for name, text in (("train.py", TRAIN), ("kernel.py", KERNEL), ("ranks.py", RANKS)):
        (work / name).write_text(text)
    settings = Settings(home=work / "home", bench_roots=(ROOT / "benchmarks",))
    load_catalog(settings)
    return Bench(work, Context(settings=settings))


def _machine() -> dict[str, Any]:
    from importlib import metadata

    from aisp_mcp.system.gpu import nvml

    reading = nvml.read()
    versions = {name: metadata.version(name) for name in ("torch", "triton")}
    return {"gpus": [gpu.name for gpu in reading.gpus], "driver": reading.driver, "versions": versions}


def _guarded(step: Callable[[Bench], dict[str, Any]], bench: Bench) -> dict[str, Any]:
    began = time.monotonic()
    try:
        result = step(bench)
    except Exception as error:
        traceback.print_exc()
        result = {"error": f"{type(error).__name__}: {error}", "hint": getattr(error, "hint", None)}
    return {**result, "seconds": round(time.monotonic() - began, 1)}


def _write(out: Path, report: dict[str, Any], bench: Bench) -> None:
    """The report so far and what the steps kept; each artifact is written once."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "report.json").write_text(json.dumps(report, indent=1))
    for name, path in bench.kept.items():
        if not (out / name).exists():
            data = path.read_bytes()
            (out / name).write_bytes(data if data[:2] == b"\x1f\x8b" else gzip.compress(data, 9))
    for name, text in bench.said.items():
        (out / name).write_bytes(gzip.compress(text.encode(), 9))


if __name__ == "__main__":
    raise SystemExit(main())
