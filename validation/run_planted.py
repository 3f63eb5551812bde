"""Record programs with one planted problem each, and healthy ones, through the tools; what is named first? Not a test.

    python validation/run_planted.py --out FOLDER [--only NAME,...] [--gpus 2] [--workers 5] [--budget SECONDS]
    python validation/run_planted.py --pack FOLDER [FOLDER ...]

Writes planted.json (one row per program, rewritten after each), planted-profiles.json.gz (what the insights were made
from, for the standard tests) and planted-traces.tar (slim traces). Programs start side by side, but
only one at a time uses the device. --pack makes the test data of what was recorded, on any machine.
"""

from __future__ import annotations

import argparse
import gzip
import json
import lzma
import os
import re
import sys
import tarfile
import tempfile
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "validation")]

import planted_programs  # noqa: E402, F401  (registers)
import scrub  # noqa: E402
from asking import ask  # noqa: E402
from planted_register import PROGRAMS, Program  # noqa: E402

from aisp_mcp.profile import load  # noqa: E402
from aisp_mcp.profile.insights.engine import insights  # noqa: E402
from aisp_mcp.profile.readers import ncu, snapshot  # noqa: E402
from aisp_mcp.profile.records import CompileProfile, NcuKernel, Profile, Timeline  # noqa: E402
from aisp_mcp.profile.timeline.idle import call_kind, range_kind  # noqa: E402
from aisp_mcp.server.context import Context  # noqa: E402
from aisp_mcp.server.dispatch import load_catalog  # noqa: E402
from aisp_mcp.settings import Settings  # noqa: E402
from aisp_mcp.system.gpu import nvml  # noqa: E402

SCRIPT = ROOT / "validation" / "planted_programs.py"
_SHOWN = 6
_WHAT = (
    "What the tools said of programs with one planted problem each, and of healthy ones, recorded by "
    "validation/run_planted.py on one GPU, or on the number in a row: rule, severity, ceiling of the gain, by size"
)
# Counters that rules and tables read, and some more: whole pages hold thousands.
_COUNTERS = re.compile(
    r"launch__|gpu__(?:time_duration|dram_thr|compute_mem)|(?:sm|dram|lts|l1tex)__throughput|sm__(?:warps|maximum|pipe|inst)"
    r"|smsp__(?:issue|inst_executed\.|thread_inst|average_warp|warp_issue|sass_average_data_bytes_per_sector_mem_\w+\.)"
    r"|l1tex__(?:t_(?:sectors|requests)_pipe_lsu_mem_(?:global|local)_op_(?:ld|st)\.sum|data_pipe_lsu_wavef|data_bank_conf)"
    r"|dram__bytes_(?:read|write)\.sum$"
)
_GPU, _API = ("kernel", "gpu_memcpy", "gpu_memset"), ("cuda_runtime", "cuda_driver")
_ARGS = {
    "device", "stream", "correlation", "bytes", "grid", "block", "registers per thread", "shared memory",
    "est. achieved occupancy %", "Collective name", "In msg nelems", "Out msg nelems", "Group size", "dtype",
}  # fmt: skip


class Recorder:
    """Runs programs and keeps what came of them."""

    def __init__(self, out: Path, work: Path) -> None:
        settings = Settings(home=work / "home", bench_roots=(ROOT / "benchmarks",))
        load_catalog(settings)
        self.out, self.lock_file = out, work / "lock"
        self.ctx = Context(settings=settings)
        self.head: dict[str, Any] = {"date": time.strftime("%Y-%m-%d"), **_machine()}
        self.rows: dict[str, dict[str, Any]] = {}
        self.profiles: dict[str, Any] = {}
        self.writing = threading.Lock()
        out.mkdir(parents=True, exist_ok=True)

    def call(self, tool: str, **args: Any) -> dict[str, Any]:
        """A tool's result, as a caller gets it."""
        return ask(self.ctx, tool, **args)

    def record(self, name: str, program: Program) -> tuple[list[dict[str, Any]], Profile, Path]:
        """The insights of the answer, the profile that they were made from, and its file."""
        words = [name, str(self.lock_file)]
        command = [sys.executable, str(SCRIPT), *words]
        if program.tool == "ncu":
            answer = self.call(
                "aisp_profile_ncu", command=command, set="full", kernel=program.kernel, launch_count=1, timeout_s=300
            )
            files = {Path(file).name: Path(file) for file in answer["files"]}
            raw = files["report.raw.csv"]
            return answer["summary"]["insights"], ncu.read(raw, files["report.details.csv"]), raw
        if program.tool == "nsys":
            answer = self.call("aisp_profile_nsys", command=command, timeout_s=300)
            path = Path(answer["database"])
            return answer["summary"]["insights"], load.load(path, "steady"), path
        answer = self.call(f"aisp_profile_{program.tool}", script=str(SCRIPT), args=words, timeout_s=300)
        if program.tool == "memory":
            path = Path(answer["snapshot"])
            return answer["insights"], snapshot.read(path), path
        path = Path(answer["trace"])
        compiled = CompileProfile(**answer["compile"]) if answer.get("compile") else None
        return answer["insights"], load.load(path, "steady").model_copy(update={"compile": compiled}), path

    def one(self, name: str) -> None:
        program, began = PROGRAMS[name], time.monotonic()
        row: dict[str, Any] = {"planted": program.rule, "tool": program.tool, "what": program.make.__doc__}
        row |= {"gpus": program.gpus} if program.gpus > 1 else {}
        try:
            insights_found, profile, path = self.record(name, program)
            row |= _judged(program, insights_found)
            again = [i.rule for i in insights(profile).found][:_SHOWN]
            row["read_again"] = "same" if again == [f["rule"] for f in insights_found] else again
            reduced = _reduced(profile, name)
        except Exception as error:
            traceback.print_exc()
            row |= {"holds": False, "error": f"{type(error).__name__}: {error}"[:600]}
            reduced, path = None, None
        row["seconds"] = round(time.monotonic() - began, 1)
        print(name, json.dumps(row), flush=True)
        with self.writing:
            self.rows[name] = row
            if reduced is not None:
                self.profiles[name] = reduced
            if path is not None and program.tool == "torch":
                self.keep(name, path)
            self.write()

    def write(self) -> None:
        ordered = {name: self.rows[name] for name in PROGRAMS if name in self.rows}
        (self.out / "planted.json").write_text(scrub.text({**self.head, "programs": ordered}))
        profiles = scrub.text({name: self.profiles[name] for name in PROGRAMS if name in self.profiles})
        compact = json.dumps(json.loads(profiles), separators=(",", ":"))
        (self.out / "planted-profiles.json.gz").write_bytes(gzip.compress(compact.encode(), 9, mtime=0))

    def keep(self, name: str, path: Path) -> None:
        """The slim trace, and whether it says what the whole one says."""
        slim = path.with_name("slim.json.gz")
        text = json.dumps(_slim(json.loads(gzip.decompress(path.read_bytes()))), separators=(",", ":"))
        slim.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
        whole, less = ([i.rule for i in insights(load.load(file, "steady")).found] for file in (path, slim))
        self.rows[name]["slim"] = "same" if whole == less else less
        with tarfile.open(self.out / "planted-traces.tar", "a") as tar:
            tar.add(slim, f"{name}.json.gz")


def _judged(program: Program, insights_found: list[dict[str, Any]]) -> dict[str, Any]:
    """Findings, and a mark if they are the planted ones."""
    rows = [[f["rule"], f["severity"], f["gain_ceiling"]] for f in insights_found]
    if program.rule is None:
        return {"found": rows, "holds": all(severity != "high" for _, severity, _ in rows)}
    return {"found": rows, "holds": bool(rows) and rows[0][0] == program.rule}


def _reduced(profile: Profile, name: str) -> dict[str, Any]:
    """The profile without what no rule reads: long tails of tables, timelines, counters of other subjects."""
    table = profile.timeline
    parts: dict[str, Any] = {
        "source": profile.source.model_copy(update={"path": name}),
        "kernels": [_counters(kernel) for kernel in profile.kernels],
        "memory": [m.model_copy(update={"timeline": [], "at_peak": m.at_peak[:2]}) for m in profile.memory],
        "timeline": table and _short(table),
    }
    return profile.model_copy(update=parts).model_dump(mode="json", exclude_defaults=True)


def _short(table: Timeline) -> Timeline:
    return table.model_copy(update={"operators": table.operators[:20], "gaps": table.gaps[:12]})


def _counters(kernel: NcuKernel) -> NcuKernel:
    counters = {name: value for name, value in kernel.metrics.items() if _COUNTERS.match(name)}
    return kernel.model_copy(update={"metrics": counters, "units": {}, "rules": []})


def _slim(trace: dict[str, Any]) -> dict[str, Any]:
    """From the first iteration on, only what the reader of traces uses; times from the first event that is kept."""
    events = [e for e in trace["traceEvents"] if e.get("ph") == "X" and _wanted(e)]
    first = min((e["ts"] for e in events if e["name"].startswith("ProfilerStep#")), default=0)
    late = [e for e in events if e["ts"] >= first]
    launched = {e["args"].get("correlation") for e in late if e["cat"] in _API}
    remaining = [e for e in late if e["cat"] not in _GPU or e["args"].get("correlation") in launched]
    rows = [_bare(e, first) for e in remaining]
    return {**{key: trace[key] for key in ("schemaVersion", "deviceProperties") if key in trace}, "traceEvents": rows}


def _wanted(event: dict[str, Any]) -> bool:
    if event.get("cat") == "cpu_op":
        return range_kind(event["name"]) is not None or call_kind(event["name"]) == "synchronize"
    return event.get("cat") in ("user_annotation", "cuda_sync", *_GPU, *_API)


def _bare(event: dict[str, Any], first: float) -> dict[str, Any]:
    args = {key: value for key, value in event.get("args", {}).items() if key in _ARGS}
    times = {"ts": round(event["ts"] - first, 3), "dur": event["dur"]}
    return {"ph": "X", **{key: event[key] for key in ("cat", "name", "pid", "tid")}, **times, "args": args}


def _machine() -> dict[str, Any]:
    reading = nvml.read()
    versions = {name: metadata.version(name) for name in ("torch",)}
    return {"gpus": [gpu.name for gpu in reading.gpus], "driver": reading.driver, "versions": versions}


def pack(folders: list[Path]) -> None:
    """The record and its test data, in their places: profiles without timelines where a slim trace tells the same.

    Of a program in several folders the last recording counts.
    """
    traces, profiles, document = {}, {}, {}
    for folder in folders:
        profiles |= json.loads(gzip.decompress((folder / "planted-profiles.json.gz").read_bytes()))
        with tarfile.open(folder / "planted-traces.tar") as tar:
            members = {member.name.partition(".")[0]: tar.extractfile(member) for member in tar.getmembers()}
            traces |= {name: json.loads(gzip.decompress(file.read())) for name, file in members.items() if file}
        new = json.loads((folder / "planted.json").read_text())
        seconds = [*document.get("seconds", []), new["seconds"]]
        document = {
            **new,
            **document,
            "programs": {**document.get("programs", {}), **new["programs"]},
            "seconds": seconds,
        }
    document["versions"] |= {
        source["tool"]: source["version"] for source in _sources(profiles) if source.get("version")
    }
    for name in traces.keys() & profiles.keys():
        profiles[name].pop("timeline", None)
    data = ROOT / "tests" / "profilers" / "data"
    whole = json.dumps(traces, separators=(",", ":"), sort_keys=True).encode()
    (data / "planted_h200.traces.json.xz").write_bytes(lzma.compress(whole, preset=9 | lzma.PRESET_EXTREME))
    text = json.dumps(profiles, separators=(",", ":"))
    (data / "planted_h200.profiles.json.gz").write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    record = ROOT / "results" / "h200-planted.json"
    earlier = json.loads(record.read_text()).get("earlier", [])  # what failed before, and why
    record.write_text(json.dumps({"what": _WHAT, **document, "earlier": earlier}, indent=1) + "\n")


def _sources(profiles: dict[str, Any]) -> list[dict[str, Any]]:
    return [profile["source"] for profile in profiles.values()]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path("planted"))
    parser.add_argument("--pack", type=Path, nargs="+")
    parser.add_argument("--only")
    parser.add_argument("--gpus", type=int, choices=(1, 2), default=1)
    parser.add_argument("--workers", type=int, default=5)
    parser.add_argument("--budget", type=float, default=240, help="seconds after which no further program begins")
    options = parser.parse_args()
    if options.pack:
        pack(options.pack)
        return 0
    names = options.only.split(",") if options.only else list(PROGRAMS)
    names = [name for name in names if PROGRAMS[name].gpus <= options.gpus]
    began = time.monotonic()
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    os.environ["NCCL_NVLS_ENABLE"] = "0"  # multicast needs rights that a lent machine does not give
    with tempfile.TemporaryDirectory(prefix="aisp-planted-", dir=Path.home()) as folder:
        (options.out / "planted-traces.tar").unlink(missing_ok=True)
        recorder = Recorder(options.out, Path(folder))

        def attempt(name: str) -> None:
            if time.monotonic() - began < options.budget:
                recorder.one(name)
            else:
                recorder.rows[name] = {"planted": PROGRAMS[name].rule, "skipped": "no time was left"}

        with ThreadPoolExecutor(options.workers) as pool:
            list(pool.map(attempt, names))
        recorder.head["seconds"] = round(time.monotonic() - began, 1)
        recorder.write()
    failed = [name for name, row in recorder.rows.items() if not row.get("holds")]
    print(json.dumps({"programs": len(recorder.rows), "seconds": recorder.head["seconds"], "do_not_hold": failed}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
