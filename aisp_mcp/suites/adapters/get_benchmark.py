"""Classes of the older harness: `get_benchmark()` returns an object with setup, benchmark_fn and teardown.

A class keeps its inputs in attributes and names them, and its output, in capture_verification_payload() through
`_set_verification_payload(inputs=…, output=…)`. The harness overwrites those attributes before every call and reads the
output's attribute after it. Both files of a pair are such classes: `baseline_x.py` and `optimized_x*.py`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from aisp_mcp.judge.candidate.formats.get_benchmark import STAND_IN
from aisp_mcp.judge.candidate.formats.get_benchmark import Candidate as Candidate
from aisp_mcp.judge.candidate.formats.get_benchmark import Reference as Reference
from aisp_mcp.suites.adapters import base
from aisp_mcp.suites.adapters.base import Constants, Problem

NAME = "get_benchmark"
PROBLEM = "problem.py"


def find(path: Path, candidates: Sequence[Path], constants: Constants) -> list[Problem]:
    """One problem per baseline_ file; a file of any other name is a problem if candidates are named."""
    trees = {file: base.parse(file) for file in base.python_files(path)}
    both = {file: tree for file, tree in trees.items() if "get_benchmark" in base.defined(tree)}
    baselines = {file: tree for file, tree in both.items() if not file.stem.startswith("optimized_")}
    near = sorted(path.parent.glob("optimized_*.py")) if path.is_file() else [*both.keys() - baselines.keys()]
    stems = {file: file.stem.removeprefix("baseline_") for file in baselines}
    problems = []
    for file, tree in baselines.items():
        stem = stems[file]
        own = [file for file in sorted(near) if file.stem.removeprefix("optimized_").startswith(stem)]
        files, candidates_found = {PROBLEM: base.read_text(file)}, {}
        for candidate in list(candidates) or own:
            name = base.variant(candidate.stem.removeprefix("optimized_"), stem)
            files[f"{name}.py"] = base.read_text(candidate)
            candidates_found[name] = {"file": f"{name}.py", "constants": dict(constants)}
        unused = ("get_custom_metrics", "get_input_signature", "get_config", "the class's own tolerance")
        summary = base.first_line(tree, f"Benchmark class of {file.name}.")
        reference = {"file": PROBLEM, "constants": dict(constants)}
        problem = Problem(NAME, base.identifier(stem), summary, files, reference, candidates_found)
        problems.append(dataclasses.replace(problem, unused=unused, stand_ins=(STAND_IN,)))
    return problems
