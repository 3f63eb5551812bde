"""Read every profile under a folder of other people's files with `aisp profile read`, each in a process of its own.

    python validation/read_foreign.py FOLDER --out results/cpu-foreign-profiles.json [--checks CHECKS.json]

FOLDER holds one folder per source repository, named OWNER+NAME, with files at their paths. A folder with the flight
recorder dumps of several ranks is read as one. The result names repositories and paths, and holds no content of a file
but the names in the first sentence. CHECKS maps OWNER+NAME/PATH to what somebody found who compared the first sentence
with the file: {"true": bool, "how": text}.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

_LIMIT_S = 300


def main() -> int:
    """1 if a reading crashed or a checked sentence is false."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--checks", type=Path)
    args = parser.parse_args()
    checks: dict[str, dict[str, Any]] = json.loads(args.checks.read_text()) if args.checks else {}
    rows = [_row(path, args.folder, checks) for path in _profiles(args.folder)]
    false = [row for row in rows if row["true"] is False]
    summary = {
        "files": len(rows),
        **Counter(row["status"] for row in rows),
        "kinds_read": dict(sorted(Counter(row["kind"] for row in rows if row["kind"]).items())),
        "forms": dict(sorted(Counter(row["form"] for row in rows).items())),
        "sentences_checked": sum(row["true"] is not None for row in rows),
        "sentences_false": len(false),
    }
    args.out.write_text(json.dumps({"summary": summary, "files": rows}, indent=1, ensure_ascii=False) + "\n")
    print(json.dumps(summary))
    return int(bool(false) or any(row["status"] == "crashed" for row in rows))


_DUMP = re.compile(r"_dump_\d+$|nccl_trace_rank_\d+")
# What a file is, by its path: the first that matches.
_FORMS = (
    (r"fr_traces|nccl_trace", "flight recorder dump"),
    (r"issues-\d+\.log|nccl.*\.log", "log of NCCL or of the watchdog"),
    (r"vllm.*json", "torch.profiler trace of vLLM"),
    (r"sglang.*json", "torch.profiler trace of SGLang"),
    (r"mtia.*json", "torch.profiler trace, MTIA"),
    (r"amd_trace|mi\d{3}.*json|rocm.*json", "torch.profiler trace, ROCm"),
    (r"jax.*json", "JAX trace (JSON)"),
    (r"xplane\.pb", "XLA xplane"),
    (r"memory_timeline", "memory timeline of torch.profiler"),
    (r"\.pickle", "allocator snapshot"),
    (r"\.sqlite", "nsys SQLite"),
    (r"rocprof.*json", "rocprofv3 JSON"),
    (r"rocprof.*csv|hip_api_trace|kernel_trace", "rocprof CSV"),
    (r"ncu.*csv", "ncu CSV"),
    (r"tables/.*csv", "table of another program"),
    (r"pftrace", "Perfetto protobuf"),
    (r"speedscope\.json", "speedscope"),
    (r"linux-perf", "perf script"),
    (r"stackcollapse", "collapsed stacks"),
    (r"callgrind", "callgrind"),
    (r"cpuprofile|heapprofile|node/|Chrome/", "V8 or Chrome profile"),
    (r"trace-event|trace_viewer", "Chrome trace of another program"),
    (r"execution_trace", "PyTorch execution trace"),
    (r"Firefox|Instruments|Safari|papyrus|haskell|pprof|Visual|trace-compass", "profile of another program"),
    (r"json", "torch.profiler trace, CUDA or CPU"),
)


def _profiles(folder: Path) -> list[Path]:
    """Files, and folders with the dumps of several ranks in place of those."""
    found: dict[Path, None] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.stat().st_size and path.name != "fault_injection.log":
            found[path.parent if _DUMP.search(path.name) else path] = None
    return list(found)


def _form(relative: Path) -> str:
    return next((form for pattern, form in _FORMS if re.search(pattern, str(relative), re.I)), "other")


def _row(path: Path, folder: Path, checks: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """seconds: processor time of the whole command, start-up included. mebibytes: its largest resident set."""
    relative = path.relative_to(folder)
    code, output, seconds, peak = _run([sys.executable, __file__, "--one", str(path)])
    crashed = {"status": "crashed", "sentence": output[-300:]}
    answer = json.loads(output.splitlines()[-1]) if code == 0 and output else crashed
    check = checks.get(str(relative), {})
    return {
        "repository": relative.parts[0].replace("+", "/"),
        "path": "/".join(relative.parts[1:]),
        "form": _form(relative),
        "bytes": sum(f.stat().st_size for f in path.iterdir()) if path.is_dir() else path.stat().st_size,
        "kind": answer.get("kind"),
        "status": answer["status"],
        "sentence": str(answer["sentence"]).replace(str(path.parent), ""),
        "seconds": round(seconds, 2),
        "mebibytes": peak,
        "true": check.get("true"),
        "how": check.get("how"),
    }


def _run(command: list[str]) -> tuple[int, str, float, int]:
    begin = resource.getrusage(resource.RUSAGE_CHILDREN)
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=os.environ)
    deadline = time.monotonic() + _LIMIT_S
    try:
        output = child.communicate(timeout=deadline - time.monotonic())[0]
    except subprocess.TimeoutExpired:
        child.kill()
        output = child.communicate()[0]
    end = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = end.ru_utime + end.ru_stime - begin.ru_utime - begin.ru_stime
    lines = output.strip().splitlines()
    peak = json.loads(lines[-1]).get("mebibytes", 0) if lines and lines[-1].startswith("{") else 0
    return child.returncode, output.strip(), spent, peak


def one(path: str) -> None:
    """The answer of the tool for one file, through the command line's own dispatch, as one line of JSON."""
    from aisp_mcp.errors import AispError
    from aisp_mcp.profile.overview.tools import ReadParams, aisp_profile_read

    try:
        answer = aisp_profile_read(ReadParams(profile=path), None)  # type: ignore[arg-type]
        sentence = answer.opening[0].text if answer.opening else ""
        row: dict[str, Any] = {"status": "read", "kind": answer.source.kind, "sentence": sentence}
    except AispError as error:
        row = {"status": "refused", "sentence": f"{error.message} {error.hint or ''}"}
    row["mebibytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(json.dumps(row))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        one(sys.argv[2])
    else:
        raise SystemExit(main())
