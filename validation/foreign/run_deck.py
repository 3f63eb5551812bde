"""Judge the candidates of a deck (see collect.py) problem after problem, and keep one table.

python validation/foreign/run_deck.py DECK --out TABLE.json [--seconds S --problems GLOB --groups GLOB --reduced]
Each problem is adapted once, and its candidates are measured together; --outputs compares their outputs and times
nothing; --apart calls `bench verify` for each of them.
The table is written after every problem; a second call goes on with what it lacks.
"""

from __future__ import annotations

import argparse
import fnmatch
import io
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any

from deck_table import summary, write

from aisp_mcp.front.cli import main as command_line
from aisp_mcp.judge.parent.processes.placement import ALLOCATOR, measuring_cpus
from aisp_mcp.suites.adapters import base

HERE = Path(__file__).resolve().parent
UNCUT = {"AISP_MCP_PREVIEW_LIMIT": "100000000", "AISP_MCP_PREVIEW_ITEMS": "1000000"}
OTHER_SIZES = (  # may help
    *("TOO_LARGE", "TOO_SLOW", "RAISED", "RECORDING_FAILED", "DEGENERATE", "UNSTABLE", "SHAPES_VARY"),
    *("NOTHING_TO_TEST", "NOTHING_MEASURED"),  # these stand for the refusals of several sizes or candidates
)
NEEDS = "There is no candidate to test"
FACTS = ("verdict", "ratio", "interval", "sentence", "time_s", "clock", "flags")
TIMING_FLAGS = ("parent_overcounts", "host_bound")
Row = dict[str, Any]


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("deck", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--limit", type=int, default=10**9, help="problems to judge in this call")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin nothing after this time")
    parser.add_argument("--problems", default="*", help="pattern of problem names, such as '0[57]_*'")
    parser.add_argument("--candidates", default=["*"], nargs="+", help="patterns of their names")
    parser.add_argument("--groups", default=["*"], nargs="+", help="such as hard, level1, gpumode, traces, operators")
    parser.add_argument("--batch", type=int, default=10**9, help="candidates of a problem to measure together")
    parser.add_argument(
        "--adapt-at-once", type=int, default=1, help="problems at their own sizes to adapt side by side"
    )
    parser.add_argument("--shape", choices=("smallest", "first", "all"), default="smallest")
    parser.add_argument("--preset", default="quick")
    parser.add_argument("--tolerance", choices=("own", "problem"), default="own")
    parser.add_argument(
        "--mode", choices=("constructed", "eval"), default="constructed", help="of KernelBench's modules"
    )
    parser.add_argument("--each", type=float, default=240.0, help="seconds that one candidate may take")
    parser.add_argument("--reduced", action="store_true", help="sizes for a CPU")
    parser.add_argument("--apart", action="store_true", help="measure every candidate by itself")
    parser.add_argument("--outputs", action="store_true", help="compare outputs alone, with `bench fuzz`")
    parser.add_argument("--inside", action="store_true", help="no process per command: less to load, no time limit")
    parser.add_argument("--set", default="{}", help="JSON of constants for all problems, such as sizes for a CPU")
    parser.add_argument("--kernelbench", type=Path, help="checkout whose own evaluation judges its problems as well")
    parser.add_argument("--plain", action=argparse.BooleanOptionalAction, default=True, help="do_bench as well")
    return parser.parse_args()


def main() -> int:
    """Judge what is missing in the table. Exit status 1 if an honest candidate was refused or a wrong one was not."""
    args, begin = arguments(), time.monotonic()
    os.environ.update(UNCUT)
    rows: list[Row] = json.loads(args.out.read_text())["rows"] if args.out.is_file() else []
    done = {row["id"] for row in rows}
    waiting = [problem for problem in chosen(args) if not {row["id"] for row in blank(problem)} <= done][: args.limit]
    for at, problem in enumerate(waiting):
        if time.monotonic() - begin > args.seconds:
            print(f"out of time: {len(waiting) - at} problems are left", flush=True)
            break
        if args.adapt_at_once > 1 and not (at % args.adapt_at_once or args.reduced or args.apart or args.inside):
            with ThreadPoolExecutor() as threads:
                soon = waiting[at : at + args.adapt_at_once]
                for each, recording in zip(soon, threads.map(partial(adapted, args), soon), strict=True):
                    each["recording"] = recording
        new = judged(args, problem)
        rows += new
        write(args.out, rows)
        for row in new:
            outcome = row.get("verdict") or row["refusal"]["code"]
            figures = [f"{row[key]:.3g}" if row.get(key) else "-" for key in ("ratio", "reused", "fresh", "seconds")]
            print(f"{at + 1}/{len(waiting)} {row['id']}: {row['auditor']} -> {outcome} {' '.join(figures)}", flush=True)
            if "refusal" in row:
                print(f"    {row['refusal']['message'][:300]}", flush=True)
    print(json.dumps(summary(rows), indent=1))
    return bool(summary(rows)["contradictions"])


def chosen(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Problems of the deck that the options name, at each of the shapes. Groups and batches take turns, so that a table
    that was cut off has all of them.
    """
    turns, batches = Counter[str](), []
    for problem in map(json.loads, (args.deck / "deck.jsonl").read_text().splitlines()):
        turns[problem["group"]] += 1
        if not (fnmatch.fnmatch(problem["problem"], args.problems) and matches(problem["group"], args.groups)):
            continue
        names = [file for file in problem["candidates"] if matches(Path(file).stem, args.candidates)]
        for at, shape in shapes(problem["shapes"], args.shape):
            sizes = {**shape, **json.loads(args.set)}
            for first in range(0, max(len(names), 1), args.batch):
                candidates = {file: problem["candidates"][file] for file in names[first : first + args.batch]}
                batches.append(
                    (first, turns[problem["group"]], {**problem, "candidates": candidates, "shape": sizes, "at": at})
                )
    return (problem for *_, problem in sorted(batches, key=lambda batch: batch[:2]))


def matches(name: str, patterns: Sequence[str]) -> bool:
    """Return True if one of the patterns matches."""
    return any(fnmatch.fnmatch(name, pattern) for pattern in patterns)


def shapes(rows: list[Row], which: str) -> list[tuple[int, Row]]:
    """(index, row) of the shapes to measure. smallest: by the product of its numbers."""
    numbered = list(enumerate(rows))
    if which == "smallest":
        return [min(numbered, key=lambda pair: math.prod(v for v in pair[1].values() if isinstance(v, int)))]
    return numbered[:1] if which == "first" else numbered


def blank(problem: dict[str, Any]) -> list[Row]:
    """Rows of a problem before it is judged; one of its own where candidates are those that were found beside it."""
    facts = {key: problem[key] for key in ("format", "group", "problem", "shape")}
    names = {Path(file).stem: auditor for file, auditor in problem["candidates"].items()} or {"as found": "unknown"}
    start, published = f"{problem['group']}/{problem['problem']}", problem.get("published") or {}
    rows = [
        {"id": f"{start}/{name}#{problem['at']}", "name": name, "auditor": auditor, **facts}
        for name, auditor in names.items()
    ]
    return [row | ({"published": published[f"{row['name']}.py"]} if published else {}) for row in rows]


def judged(args: argparse.Namespace, problem: dict[str, Any]) -> list[Row]:
    """Rows of a problem; for a CPU with the first of its reduced sizes that works."""
    rows: list[Row] = []
    for sizes in (problem["reduced"] if args.reduced else None) or [{}]:
        sized = {**problem, "shape": {**problem["shape"], **sizes}}
        rows = apart(args, sized) if args.apart and problem["candidates"] else together(args, sized)
        if not all(unusable(row) for row in rows):
            break
    for row in rows if problem["candidates"] else ():
        if args.plain and row.get("verdict") not in (None, "incorrect", "invalid") and row["format"] == "kernelbench":
            row |= plain(args, problem, row)
        if args.kernelbench and row["group"].startswith(("level", "cuda_l1")):
            row["kernelbench"] = evaluated(args, problem, row)
    return rows


def unusable(row: Row) -> bool:
    """Return True for a refusal that other sizes may not have."""
    refusal = row.get("refusal", {"code": "", "message": ""})
    return refusal["code"] in OTHER_SIZES and NEEDS not in (refusal["message"] or "")


def apart(args: argparse.Namespace, problem: dict[str, Any]) -> list[Row]:
    """Rows of `bench verify` for each candidate; seconds: of its whole command."""
    rows = []
    for row, file in zip(blank(problem), problem["candidates"], strict=True):
        words = ["verify", "--target", args.deck / problem["path"], "--format", problem["format"], "--evidence"]
        words += ["--candidate", args.deck / Path(problem["path"]).parent / file, "--set", json.dumps(row["shape"])]
        words += ["--preset", args.preset, "--tolerance", args.tolerance, "--timeout-s", args.each, "--mode", args.mode]
        begin = time.monotonic()
        answer = bench(args, words, args.each + 30)
        result = answer.get("result") or {}
        failure = answer.get("error") or next(iter(result.get("failed") or result.get("skipped") or []), None)
        rows.append({**row, "seconds": round(time.monotonic() - begin, 2), **outcome(result, 0, failure)})
    return rows


def adapted(args: argparse.Namespace, problem: dict[str, Any]) -> tuple[Path, dict[str, Any], float]:
    """(folder, envelope, seconds) of adapting a problem with all its candidates."""
    names = [problem["problem"], str(problem["at"]), *map(Path, list(problem["candidates"])[:1])]
    folder = args.deck / ".pairs" / problem["group"] / "-".join(Path(name).stem for name in names)
    shutil.rmtree(folder, ignore_errors=True)
    root = args.deck / problem["path"]
    at = root if root.is_dir() else root.parent
    begin = time.monotonic()
    words = ["adapt", root, "--format", problem["format"], "--to", folder, "--allow-write", args.deck]
    words += ["--set", json.dumps(problem["shape"]), "--tolerance", args.tolerance, "--mode", args.mode]
    words += ["--candidates", *(at / file for file in problem["candidates"])] if problem["candidates"] else []
    answer = bench(args, words, args.each)
    return folder, answer, round(time.monotonic() - begin, 2)


def together(args: argparse.Namespace, problem: dict[str, Any]) -> list[Row]:
    """Rows of all candidates, adapted and measured in two commands; seconds: the comparison's, adapt_s: recording."""
    rows = blank(problem)
    folder, answer, adapt_s = problem.pop("recording", None) or adapted(args, problem)
    found = answer.get("result") or {}
    failure = answer.get("error") or (None if found["problems"] else next(iter(found["failed"])))
    if failure:
        return [{**row, "seconds": adapt_s, **outcome({}, 0, failure)} for row in rows]
    unread = {failed["target"]: failed for failed in found["failed"]}
    disclosed = found["problems"][0]["disclosed"]
    files_of_rows = [Path(name).name for name in problem["candidates"]]
    if args.outputs and problem["candidates"]:
        facts = {"adapt_s": adapt_s, "disclosed": disclosed}
        new = compared(args, rows, found["problems"][0]["target"], folder)
        return [
            {**row, **facts, **(outcome({}, 0, unread[file]) if file in unread else each)}
            for row, each, file in zip(rows, new, files_of_rows, strict=True)
        ]
    words = [
        "run",
        "--targets",
        f"{problem['format']}:*",
        "--bench-root",
        folder,
        "--preset",
        args.preset,
        "--evidence",
    ]
    measured = bench(args, words, args.each * len(rows))
    result = measured.get("result") or {}
    if not problem["candidates"]:
        return [as_found({**rows[0], "adapt_s": adapt_s, "disclosed": disclosed}, measured)]
    return [
        {**row, "adapt_s": adapt_s, "disclosed": disclosed}
        | (outcome({}, 0, unread[file]) if file in unread else named(result, row["name"], measured.get("error")))
        for row, file in zip(rows, files_of_rows, strict=True)
    ]


def compared(args: argparse.Namespace, rows: list[Row], target: str, folder: Path) -> list[Row]:
    """Verdict (passed or incorrect) or refusal of each row, by outputs on all kinds of inputs. seconds: of all rows."""
    begin = time.monotonic()
    words = ["fuzz", "--target", target, "--no-boundaries", "--bench-root", folder]
    answer = bench(args, words, args.each * len(rows))
    seconds = round(time.monotonic() - begin, 2)
    result = answer.get("result") or {}
    if failure := answer.get("error") or next(iter(result.get("unusable") or ()), None):
        return [{"seconds": seconds, **outcome({}, 0, failure)} for _ in rows]
    failing = {each["candidate"]: each["errors"] for each in result["failing"]}
    skipped = {each["target"]: each for each in result.get("skipped") or ()}
    new: list[Row] = []
    for row in rows:
        ending = f"_{base.variant(row['name'], 'solution')}"
        wrong = [errors for label, errors in failing.items() if label.endswith(ending)]
        lacking = [skip for label, skip in skipped.items() if label.endswith(ending)]
        if wrong:
            new.append({"verdict": "incorrect", "seconds": seconds, "sentence": wrong[0][0][:300]})
        else:
            new.append(outcome({}, 0, lacking[0]) if lacking else {"verdict": "passed", "seconds": seconds})
    return new


def as_found(row: Row, measured: dict[str, Any]) -> Row:
    """The row of a problem with the candidates that lay beside it: the verdicts, and why others have none."""
    result = measured.get("result") or {}
    verdicts = {each["target"]: each["verdict"] for each in result.get("rulings") or ()}
    reasons = {each["target"]: each["missing"] for each in result.get("skipped") or ()}
    reasons |= {each["target"]: each["message"] for each in result.get("failed") or ()}
    if error := measured.get("error"):
        reasons["all"] = error["message"]
    return {**row, "verdict": "adapted", "verdicts": verdicts, "reasons": reasons}


def named(result: dict[str, Any], name: str, error: Any) -> Row:
    """What a run says about the candidate of that name."""
    ending = f"_{base.variant(name, 'solution')}"
    for at, verdict in enumerate(result.get("rulings") or ()):
        if verdict["target"].endswith(ending):
            return outcome(result, at, None)
    for other in (*(result.get("failed") or ()), *(result.get("skipped") or ())):
        if other["target"].endswith(ending):
            return outcome({}, 0, other)
    return outcome({}, 0, error or {"code": "NO_ANSWER", "message": "the run says nothing about it"})


def outcome(result: dict[str, Any], at: int, failure: Any) -> Row:
    """Verdict or refusal."""
    if failure:
        return {"refusal": {"code": failure["code"], "message": failure.get("message") or failure.get("missing")}}
    verdict, evidence = result["rulings"][at], result["evidence"][at]
    row = {key: verdict[key] for key in FACTS}
    phases = evidence["phases"]
    row |= {"phases": phases, "seconds": round(sum(phases.values()), 2), "clocks": evidence["clocks"]}
    row |= {"notes": [flag["message"] for flag in evidence["flags"] if flag["code"] in TIMING_FLAGS]}
    return row | {
        "warnings": {flag["code"]: flag["evidence"] for flag in evidence["flags"] if flag["severity"] != "note"}
    }


def plain(args: argparse.Namespace, problem: dict[str, Any], row: Row) -> Row:
    """Ratios without a judge, or why there are none."""
    words = [*files(args, problem, row), json.dumps(row["shape"]), row["group"]]
    variables = {**ALLOCATOR, "OMP_NUM_THREADS": str(len(measuring_cpus()))} if args.reduced else {}
    done = called([str(HERE / "plain_ratio.py"), *map(str, words)], args.each, **variables)
    try:
        return dict(json.loads((done.stdout if done else "").splitlines()[-1]))
    except (ValueError, IndexError):
        return {"plain_error": (done.stderr.strip().splitlines() or ["no message"])[-1][:300] if done else "too long"}


def evaluated(args: argparse.Namespace, problem: dict[str, Any], row: Row) -> Row:
    """The findings of KernelBench's evaluation. seconds: of its whole process."""
    begin = time.monotonic()
    words = [HERE / "kernelbench_eval.py", args.kernelbench, *files(args, problem, row)]
    done = called([*map(str, words)], args.each)
    seconds = round(time.monotonic() - begin, 2)
    try:
        return {"seconds": seconds, **json.loads((done.stdout if done else "").splitlines()[-1])}
    except (ValueError, IndexError):
        lines = done.stderr.strip().splitlines() if done else ["too long"]
        return {"seconds": seconds, "error": (lines or ["no message"])[-1][:300]}


def files(args: argparse.Namespace, problem: dict[str, Any], row: Row) -> tuple[Path, Path]:
    """Paths of the problem and of the row's candidate."""
    path = args.deck / problem["path"]
    file = next(file for file in problem["candidates"] if Path(file).stem == row["name"])
    return path, path.parent / file


def bench(args: argparse.Namespace, words: list[Any], seconds: float) -> dict[str, Any]:
    """The envelope of a command of `aisp bench`."""
    more = ["--json", "--artifacts-dir", args.deck / ".store", "--executor", "inprocess"]
    if args.inside:
        return inside(["bench", *map(str, [*words, *more])])
    done = called(["-m", "aisp_mcp.front.cli.main", "bench", *map(str, [*words, *more])], seconds)
    if done is None:
        return {"error": {"code": "TIMEOUT", "message": "took too long"}}
    try:
        return dict(json.loads(done.stdout))
    except ValueError:
        return {"error": {"code": "NO_ANSWER", "message": (done.stderr or done.stdout)[-500:]}}


def inside(words: list[str]) -> dict[str, Any]:
    """The envelope of a command in this process, which keeps loaded libraries for the next one."""
    output = io.StringIO()
    with redirect_stdout(output), redirect_stderr(io.StringIO()):
        command_line.main(words)
    try:
        return dict(json.loads(output.getvalue()))
    except ValueError:
        return {"error": {"code": "NO_ANSWER", "message": output.getvalue()[-500:]}}


def called(words: list[str], seconds: float, **variables: str) -> subprocess.CompletedProcess[str] | None:
    """The finished process of this Python, or None where it took too long."""
    search = [str(HERE.parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    environ = {**os.environ, **UNCUT, **variables, "PYTHONPATH": os.pathsep.join(search)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    child = subprocess.Popen([sys.executable, *words], text=True, env=environ, start_new_session=True, **pipes)
    try:
        return subprocess.CompletedProcess(child.args, 0, *child.communicate(timeout=seconds))
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)  # with what it started, which would keep the device
        child.communicate()
        return None


if __name__ == "__main__":
    sys.exit(main())
