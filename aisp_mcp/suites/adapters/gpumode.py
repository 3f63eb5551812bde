"""GPU MODE: `reference.py` (ref_kernel, generate_input), `task.yml` and `submission.py` (custom_kernel).

Field names: gpu-mode/reference-kernels, problems/*/task.yml. Every row of `benchmarks` in task.yml is one problem, or
of `tests` if there are no benchmarks. The task's own checker is not used: it allows more than the harness does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from aisp_mcp.errors import BenchmarkError
from aisp_mcp.judge.candidate.formats.gpumode import Candidate as Candidate
from aisp_mcp.judge.candidate.formats.gpumode import Reference as Reference
from aisp_mcp.suites.adapters import base
from aisp_mcp.suites.adapters.base import Constants, Problem

NAME = "gpumode"
_NOT_TAKEN = ("submission.py", "reference.py", "eval.py")


def find(path: Path, candidates: Sequence[Path], constants: Constants) -> list[Problem]:
    """One problem per row of benchmarks. constants: arguments of generate_input, instead of the row's own."""
    folder = path if path.is_dir() else path.parent
    if not (folder / "task.yml").is_file() or not (folder / "reference.py").is_file():
        return []
    tree = base.parse(folder / "reference.py")
    if not {"ref_kernel", "generate_input"} <= base.defined(tree):
        return []
    task = _task(folder / "task.yml")
    files = {"reference.py": base.read_text(folder / "reference.py"), **_helpers(folder, task)}
    submissions = list(candidates) or sorted(folder.glob("submission*.py"))
    for each in submissions:
        if "custom_kernel" not in base.defined(base.parse_candidate(each)):
            raise BenchmarkError("NO_CUSTOM_KERNEL", f"{each.name} defines no custom_kernel.", "See docs/adapters.md.")
        files[f"candidate_{base.identifier(each.stem)}.py"] = base.read_text(each)
    rows = [row for row in task.get("benchmarks") or task.get("tests") or [] if isinstance(row, dict)]
    summary = str(task.get("description") or "").strip().partition("\n")[0] or f"GPU MODE problem {folder.name}."
    return [
        Problem(
            NAME,
            base.identifier(f"{folder.resolve().name}_{at}"),
            summary,
            files,
            {"given": {**row, **constants}},
            {
                base.identifier(file.stem): {"file": f"candidate_{base.identifier(file.stem)}.py"}
                for file in submissions
            },
            unused=("check_implementation", "time-outs and the ranking of task.yml"),
        )
        for at, row in enumerate(rows)
    ]


def _task(file: Path) -> dict[str, Any]:
    import yaml

    try:
        task = yaml.safe_load(base.read_text(file))
    except yaml.YAMLError as error:
        raise BenchmarkError("UNREADABLE", f"task.yml is not YAML: {error}.") from error
    if not isinstance(task, dict):
        raise BenchmarkError("UNREADABLE", "task.yml contains no mapping.")
    return task


def _helpers(folder: Path, task: Mapping[str, Any]) -> dict[str, str]:
    """Modules next to the reference that task.yml names, such as utils.py of the parent folder."""
    helpers = {}
    for entry in task.get("files") or ():
        name, source = str(entry.get("name")), str(entry.get("source"))
        if name.endswith(".py") and name not in _NOT_TAKEN and "/" not in name and (folder / source).is_file():
            helpers[name] = base.read_text(folder / source)
    return helpers
