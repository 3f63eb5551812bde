"""The check that the contents of a bundle follow from its rounds. Pure functions over its files."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from aisp_mcp.judge.audit_log import check_text
from aisp_mcp.judge.records.verdict import Comparison
from aisp_mcp.judge.verdict import replay
from aisp_mcp.optimize import board as boards
from aisp_mcp.optimize import sessions
from aisp_mcp.optimize.bundle.archive import sha256
from aisp_mcp.optimize.records import CANDIDATES, LOG, SPEC
from aisp_mcp.runs import functions
from aisp_mcp.store.records.run import Run
from aisp_mcp.suites.adapters import origin

OPTIMIZATION = "optimization"
NOT_IN_LOG = ("log_path", "log_sha256", "peak", "flags", "sentence", "disclosed")  # the last four: checked separately
# Flags that a run adds to a verdict.
SIZED = (functions.GROWN, functions.KEPT)
ADDED_LATER = ("not_canonical", "above_ceiling", "inputs_not_fresh", *SIZED, origin.TRAINING_MODE)
# What a run knows beyond the log: the origin of a pair that was made for it, and a gate's further looks.
DISCLOSED_LATER = ("adapted_from", "adapted", "inputs", "sizes", "baseline_function", "identity", "looks", "outcome")
TOLERANCE = 1e-9  # mathematical libraries of two machines may round differently

Contents = Mapping[str, bytes]


def runs(contents: Contents) -> Iterator[tuple[str, Run]]:
    """(folder, record) of each run. Raises ValueError for a record in another run's folder."""
    for name, data in contents.items():
        if re.fullmatch(r"runs/[^/]+/run\.json", name):
            run = Run.model_validate_json(data)
            if name != f"runs/{run.id}/run.json":
                raise ValueError(f"{name} is the record of {run.id}")
            yield name.removesuffix("run.json"), run


def check_runs(contents: Contents) -> int:
    """Number of logs, each of which ends in the verdict that its run records. Raises ValueError, KeyError."""
    return sum(_check_run(contents, folder, run) for folder, run in runs(contents))


def _check_run(contents: Contents, folder: str, run: Run) -> int:
    for name, digest in run.sources.items():
        if folder + name in contents and sha256(contents[folder + name]) != digest:
            raise ValueError(f"{name} is not what was measured")
    for comparison in run.comparisons:
        _check_comparison(contents, folder, run, comparison)
    return len(run.comparisons)


def _check_comparison(contents: Contents, folder: str, run: Run, comparison: Comparison) -> None:
    """Compute the comparison again from its log. Raises ValueError for one that does not follow."""
    name, label = folder + Path(comparison.log_path or "").name, comparison.label
    if name not in contents:
        raise ValueError(f"the log of {label} is missing, so its verdict cannot be checked")
    records = _log(contents, name)
    if sha256(contents[name].splitlines()[-1]) != comparison.log_sha256:
        raise ValueError(f"{name} is not the log of the verdict on {label}")
    terms = [record for record in records if record["kind"] == "terms"]
    if len(terms) != 1:
        raise ValueError(f"{name} lacks data that the verdict depends on: it may be from an earlier version")
    if (different := _differences(comparison, replay.replay(records), records[-1])) is not None:
        raise ValueError(f"the {different} of {label} does not follow from its rounds")
    if terms[0]["preset"]["name"] != run.preset:
        raise ValueError(f"{label} was measured with another preset than {run.preset}")
    if any(run.sources.get(source) != digest for source, digest in terms[0]["sources"].items()):
        raise ValueError(f"{label} was measured with other files")


def _log(contents: Contents, name: str) -> list[dict[str, Any]]:
    """The records of a log. Raises ValueError for a broken chain, KeyError if it is missing."""
    text = contents[name].decode()
    check_text(text, name)
    return [json.loads(line) for line in text.splitlines()]


def _differences(recorded: Comparison, computed: Comparison, last: Mapping[str, Any]) -> str | None:
    """The first field in which a comparison differs from the one computed from its log."""
    before, after = recorded.model_dump(mode="json"), computed.model_dump(mode="json")
    if (last.get("verdict"), last.get("ratio")) != (before["verdict"], before["ratio"]):
        return "verdict"
    for name in before:
        if name not in NOT_IN_LOG and not _is_same(before[name], after[name]):
            return name.replace("_", " ")
    number = len(after["flags"])
    more = recorded.flags[number:]
    if not _is_same(before["flags"][:number], after["flags"]) or not {flag.code for flag in more} <= set(ADDED_LATER):
        return "list of flags"
    clauses = [f"; {functions.clause(flag)}" for flag in more if flag.code == functions.GROWN]
    clauses += [f"; {origin.HINT}" for flag in more if flag.code == origin.TRAINING_MODE]
    if recorded.sentence != computed.sentence + "".join(clauses):
        return "sentence"
    disclosed = {name: value for name, value in before["disclosed"].items() if name not in DISCLOSED_LATER}
    if not _is_same(disclosed, after["disclosed"]):
        return "disclosure"
    return None if _is_share(recorded) else "share of the ceiling"


def _is_same(first: Any, second: Any) -> bool:
    """Equality of JSON values, except for rounding."""
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(_is_same(value, second[name]) for name, value in first.items())
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(_is_same, first, second))
    if isinstance(first, float) and isinstance(second, float | int):
        both_nan = math.isnan(first) and math.isnan(second)
        return both_nan or math.isclose(first, second, rel_tol=TOLERANCE, abs_tol=0.0)
    return bool(first == second)


def _is_share(comparison: Comparison) -> bool:
    """Return True if the share of a ceiling follows from the candidate's rate; the ceiling is the signer's claim."""
    peak, figures = comparison.peak, comparison.optimized
    if peak is None:
        return True
    rates = [] if figures is None else [figures.flops_per_s, figures.bytes_per_s]
    return peak.rate in rates and math.isclose(peak.share, peak.rate / peak.ceiling, rel_tol=TOLERANCE)


def check_optimization(contents: Contents) -> int:
    """Return 1, for its log: a chain that agrees with the files and runs next to it. Raises ValueError, KeyError."""
    started, submissions, _ = sessions.parsed(optimization_log(contents))
    folder = f"{OPTIMIZATION}/"
    hashes = {f"{folder}{CANDIDATES}/{submission.number:03d}.py": submission.sha256 for submission in submissions}
    hashes[f"{folder}{SPEC}/{started.baseline}"] = started.baseline_sha256
    for name, digest in hashes.items():
        if sha256(contents[name]) != digest:
            raise ValueError(f"{name} is not what was submitted")
    again = {submission.number: submission.again for submission in submissions if submission.again}
    confirmed = {
        submission.number: submission.confirmed for submission in submissions if submission.confirmed is not None
    }
    if boards.confirm(boards.finalists(submissions), again) != confirmed:
        raise ValueError("what it calls confirmed does not follow from its measurements")
    by_id = {run.id: run for _, run in runs(contents)}
    for submission in submissions:
        files = {"baseline.py": started.baseline_sha256, "candidate.py": submission.sha256}
        if submission.again:  # the claims are about these: their runs must be in the bundle
            _check_measured(by_id[submission.again_run_id or ""], submission.again, files)
        if submission.comparison and submission.run_id in by_id:
            _check_measured(by_id[submission.run_id], submission.comparison, files)
    return 1


def _check_measured(run: Run, comparison: Comparison, files: Mapping[str, str]) -> None:
    """Raise ValueError unless the run contains this comparison, of these files."""
    (measured,) = (other for other in run.comparisons if other.label == comparison.label)
    later = {"peak", "flags"}
    if comparison.model_dump(exclude=later) != measured.model_dump(exclude=later):
        raise ValueError(f"{comparison.label} is not what {run.id} measured")
    folder = f"sources/{comparison.label.replace(':', '-').replace('/', '-')}/"
    if any(run.sources.get(folder + name) != digest for name, digest in files.items()):
        raise ValueError(f"{comparison.label} was measured with other files")


def optimization_log(contents: Contents) -> list[dict[str, Any]]:
    """The records of the optimisation's log. Raises ValueError for a broken chain, KeyError if it is missing."""
    return _log(contents, f"{OPTIMIZATION}/{LOG}")


def absent(contents: Contents) -> list[str]:
    """Names of files that the records name and that are missing, because they were cleaned up before."""
    names = [
        folder + name
        for folder, run in runs(contents)
        for name in (*(Path(comparison.log_path or "").name for comparison in run.comparisons), *run.sources)
    ]
    if f"{OPTIMIZATION}/{LOG}" in contents:
        _, submissions, _ = sessions.parsed(optimization_log(contents))
        ids = [
            run_id for submission in submissions for run_id in (submission.run_id, submission.again_run_id) if run_id
        ]
        names += [f"runs/{run_id}/run.json" for run_id in ids]
    return sorted({name for name in names if name not in contents})
