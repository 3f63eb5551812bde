"""Judge the entries of a deck (see collect.py) one after the other, and keep one table.

python validation/foreign/run_deck.py DECK --out TABLE.json [--limit N --seconds S --problems GLOB --shape smallest]
The table is written after every entry; a second call goes on with the entries that it lacks.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import math
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
UNCUT = {"AISP_MCP_PREVIEW_LIMIT": "100000000", "AISP_MCP_PREVIEW_ITEMS": "1000000"}
RECORDED = ("TOO_LARGE", "RAISED", "RECORDING_FAILED", "DEGENERATE")  # other sizes may work


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("deck", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--limit", type=int, default=10**9, help="entries to judge in this call")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin nothing after this time")
    parser.add_argument("--problems", default="*", help="pattern of problem names, such as '0[57]_*'")
    parser.add_argument("--candidates", default="*")
    parser.add_argument("--groups", default="*", help="hard, level1, level2, level3")
    parser.add_argument("--shape", choices=("smallest", "first", "all"), default="smallest")
    parser.add_argument("--preset", default="quick")
    parser.add_argument("--tolerance", choices=("own", "problem"), default="own")
    parser.add_argument("--each", type=float, default=240.0, help="seconds that one candidate may take")
    parser.add_argument("--reduced", action="store_true", help="sizes for a CPU")
    parser.add_argument("--set", default="{}", help="JSON of constants for all problems, such as sizes for a CPU")
    parser.add_argument("--plain", action=argparse.BooleanOptionalAction, default=True, help="do_bench as well")
    return parser.parse_args()


def main() -> int:
    """Judge what is missing in the table. Exit status 1 if an honest candidate was refused or a wrong one was not."""
    args, begin = arguments(), time.monotonic()
    rows: list[dict[str, Any]] = json.loads(args.out.read_text())["rows"] if args.out.is_file() else []
    done = {row["id"] for row in rows}
    waiting = [entry for entry in chosen(args) if entry["id"] not in done][: args.limit]
    for at, entry in enumerate(waiting):
        if time.monotonic() - begin > args.seconds:
            print(f"out of time: {len(waiting) - at} entries are left", flush=True)
            break
        rows.append(row := judged(args, entry))
        write(args.out, rows)
        outcome = row.get("verdict") or row["refusal"]["code"]
        figures = [f"{row[key]:.3g}" if row.get(key) else "-" for key in ("ratio", "reused", "fresh", "seconds")]
        print(f"{at + 1}/{len(waiting)} {row['id']}: {row['auditor']} -> {outcome} {' '.join(figures)}", flush=True)
        if "refusal" in row:
            print(f"    {row['refusal']['message'][:300]}", flush=True)
    print(json.dumps(summary(rows), indent=1))
    return bool(summary(rows)["contradictions"])


def chosen(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Entries of the deck that the options name; problems take turns, so that a cut-off table has all of them."""
    entries = [json.loads(line) for line in (args.deck / "deck.jsonl").read_text().splitlines()]
    turns = Counter[str]()
    order = []
    for entry in entries:
        patterns = ((entry["problem"], args.problems), (entry["name"], args.candidates), (entry["group"], args.groups))
        if all(fnmatch.fnmatch(name, pattern) for name, pattern in patterns):
            order.append((turns[entry["problem"]], entry))
            turns[entry["problem"]] += 1
    for _, entry in sorted(order, key=lambda pair: pair[0]):
        for at, shape in shapes(entry["shapes"], args.shape):
            text = f"{entry['group']}/{entry['problem']}/{entry['name']}"
            yield {**entry, "shape": {**shape, **json.loads(args.set)}, "id": f"{text}#{at}"}


def shapes(rows: list[dict[str, Any]], which: str) -> list[tuple[int, dict[str, Any]]]:
    """(index, row) of the shapes to measure. smallest: by the product of its numbers."""
    numbered = list(enumerate(rows))
    if which == "smallest":
        return [min(numbered, key=lambda pair: math.prod(v for v in pair[1].values() if isinstance(v, int)))]
    return numbered[:1] if which == "first" else numbered


def judged(args: argparse.Namespace, entry: dict[str, Any]) -> dict[str, Any]:
    """The row of an entry; for a CPU with the first of its reduced sizes that works."""
    ladder = entry.get("reduced") if args.reduced else None
    for sizes in ladder or [{}]:
        row = verified(args, {**entry, "shape": {**entry["shape"], **sizes}})
        if row.get("refusal", {}).get("code") not in RECORDED:
            break
    if args.plain and "verdict" in row and row["verdict"] not in ("incorrect", "invalid"):
        row |= plain(args, {**entry, "shape": row["shape"]})
    return row


def verified(args: argparse.Namespace, entry: dict[str, Any]) -> dict[str, Any]:
    """Run `bench verify` on an entry."""
    row = {key: entry[key] for key in ("id", "group", "problem", "name", "auditor", "shape")}
    words = [
        "--evidence",
        "--format",
        "kernelbench",
        "--target",
        args.deck / entry["reference"],
        "--preset",
        args.preset,
        "--json",
    ]
    words += ["--candidate", args.deck / entry["candidate"], "--set", json.dumps(entry["shape"])]
    words += ["--tolerance", args.tolerance, "--timeout-s", str(args.each), "--artifacts-dir", args.deck / ".store"]
    begin = time.monotonic()
    done = called(
        [sys.executable, "-m", "aisp_mcp.front.cli.main", "bench", "verify", *map(str, words)], args.each + 30
    )
    row["seconds"] = round(time.monotonic() - begin, 2)
    return row | answer(done)


def answer(done: subprocess.CompletedProcess[str] | None) -> dict[str, Any]:
    """Verdict or refusal of a call of `bench verify`."""
    if done is None:
        return {"refusal": {"code": "TIMEOUT", "message": "took too long"}}
    try:
        envelope = json.loads(done.stdout)
    except ValueError:
        return {"refusal": {"code": "NO_ANSWER", "message": (done.stderr or done.stdout)[-500:]}}
    result = envelope.get("result") or {}
    error = envelope.get("error") or next(iter(result.get("failed") or []), None)
    if error:
        return {"refusal": {"code": error["code"], "message": error["message"]}}
    if skipped := result.get("skipped"):
        return {"refusal": {"code": "SKIPPED", "message": skipped[0]["missing"]}}
    verdict, evidence = result["rulings"][0], result["evidence"][0]
    row = {key: verdict[key] for key in ("verdict", "ratio", "interval", "sentence", "time_s", "clock", "flags")}
    return row | {"clocks": evidence["clocks"], "phases": evidence["phases"]}


def plain(args: argparse.Namespace, entry: dict[str, Any]) -> dict[str, Any]:
    """Ratios without a judge, or why there are none."""
    words = [args.deck / entry["reference"], args.deck / entry["candidate"], json.dumps(entry["shape"]), entry["group"]]
    done = called([sys.executable, str(HERE / "plain_ratio.py"), *map(str, words)], args.each)
    try:
        return dict(json.loads((done.stdout if done else "").splitlines()[-1]))
    except (ValueError, IndexError):
        return {"plain_error": (done.stderr.strip().splitlines() or ["no message"])[-1][:300] if done else "too long"}


def called(words: list[str], seconds: float) -> subprocess.CompletedProcess[str] | None:
    """The finished process, or None where it took too long."""
    search = [str(HERE.parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    environ = {**os.environ, **UNCUT, "PYTHONPATH": os.pathsep.join(search)}
    try:
        return subprocess.run(words, capture_output=True, text=True, timeout=seconds, env=environ)
    except subprocess.TimeoutExpired:
        return None


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Counts, and entries whose verdict contradicts what is known of their candidates."""
    outcomes = Counter(f"{row['auditor']}: {row.get('verdict') or row['refusal']['code']}" for row in rows)
    refused = ("incorrect", "invalid")
    accused = [row["id"] for row in rows if row["auditor"] in ("honest", "clean") and row.get("verdict") in refused]
    missed = [row["id"] for row in rows if row["auditor"] == "wrong" and row.get("verdict", "invalid") not in refused]
    ratios = [row["ratio"] / row["fresh"] for row in rows if row.get("ratio") and row.get("fresh")]
    logs = sorted(map(math.log, ratios))
    return {
        "outcomes": dict(sorted(outcomes.items())),
        "contradictions": [*accused, *missed],
        "median_ratio_to_fresh": math.exp(logs[len(logs) // 2]) if logs else None,
        "judged": sum("verdict" in row for row in rows),
        "of": len(rows),
    }


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    """Replace the table in one step, so that a kill leaves a whole one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".part")
    temporary.write_text(json.dumps({"summary": summary(rows), "rows": rows}, indent=1) + "\n")
    temporary.replace(path)


if __name__ == "__main__":
    sys.exit(main())
