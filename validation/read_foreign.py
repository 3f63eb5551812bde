"""Read every profile under a folder of other people's files with `aisp profile read`, each in a process of its own.

    python validation/read_foreign.py FOLDER --out results/cpu-foreign-profiles.json [--checks CHECKS.json]

FOLDER holds one folder per source repository, named OWNER+NAME, with files at their paths. The result names
repositories and paths, and holds no content of a file but the names in the first sentence. CHECKS maps
OWNER+NAME/PATH to what somebody found who compared the first sentence with the file: {"true": bool, "how": text}.
"""

from __future__ import annotations

import argparse
import json
import os
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
    rows = [
        _row(path, args.folder, checks)
        for path in sorted(args.folder.rglob("*"))
        if path.is_file() and path.stat().st_size
    ]
    false = [row for row in rows if row["true"] is False]
    summary = {
        "files": len(rows),
        **Counter(row["status"] for row in rows),
        "kinds_read": dict(sorted(Counter(row["kind"] for row in rows if row["kind"]).items())),
        "sentences_checked": sum(row["true"] is not None for row in rows),
        "sentences_false": len(false),
    }
    args.out.write_text(json.dumps({"summary": summary, "files": rows}, indent=1, ensure_ascii=False) + "\n")
    print(json.dumps(summary))
    return int(bool(false) or any(row["status"] == "crashed" for row in rows))


def _row(path: Path, folder: Path, checks: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """seconds: processor time of the whole command, start-up included. mebibytes: its largest resident set."""
    relative = path.relative_to(folder)
    code, output, seconds, peak = _run([sys.executable, __file__, "--one", str(path)])
    line = (
        json.loads(output.splitlines()[-1])
        if code == 0 and output
        else {"status": "crashed", "sentence": output[-300:]}
    )
    check = checks.get(str(relative), {})
    return {
        "repository": relative.parts[0].replace("+", "/"),
        "path": "/".join(relative.parts[1:]),
        "bytes": path.stat().st_size,
        "kind": line.get("kind"),
        "status": line["status"],
        "sentence": str(line["sentence"]).replace(str(path.parent), ""),
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
        outcome = {"status": "read", "kind": answer.source.kind, "sentence": sentence}
    except AispError as error:
        outcome = {"status": "refused", "sentence": f"{error.message} {error.hint or ''}"}
    outcome["mebibytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(json.dumps(outcome))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        one(sys.argv[2])
    else:
        raise SystemExit(main())
