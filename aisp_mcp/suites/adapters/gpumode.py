"""GPU MODE: `reference.py` (ref_kernel, generate_input), `task.yml` and `submission.py` (custom_kernel).

Field names: gpu-mode/reference-kernels, problems/*/task.yml. Every row of `benchmarks` in task.yml is one problem, or
of `tests` where there are no benchmarks. The task's own checker is not used: it allows more than the harness does.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from aisp_mcp.errors import BenchmarkError
from aisp_mcp.suites.adapters import base, runtime
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
    found = list(candidates) or sorted(folder.glob("submission*.py"))
    for each in found:
        if "custom_kernel" not in base.defined(base.parse(each)):
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
            {base.identifier(one.stem): {"file": f"candidate_{base.identifier(one.stem)}.py"} for one in found},
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
        raise BenchmarkError("UNREADABLE", "task.yml holds no mapping.")
    return task


def _helpers(folder: Path, task: Mapping[str, Any]) -> dict[str, str]:
    """Modules beside the reference that task.yml names, such as utils.py of the folder above."""
    found = {}
    for entry in task.get("files") or ():
        name, source = str(entry.get("name")), str(entry.get("source"))
        if name.endswith(".py") and name not in _NOT_TAKEN and "/" not in name and (folder / source).is_file():
            found[name] = base.read_text(folder / source)
    return found


class Reference(runtime.Reference):
    """ref_kernel, with inputs by generate_input."""

    def __init__(self, folder: Path, given: Mapping[str, Any], arguments: Any = None) -> None:
        super().__init__(folder, arguments)
        self.given = dict(given)
        self.module = runtime.load(folder / "reference.py", "reference")

    def draw(self) -> Any:
        """The data of one call; the row's seed is replaced."""
        import torch

        given = dict(self.given)
        if "seed" in inspect.signature(self.module.generate_input).parameters:
            given["seed"] = int(torch.randint(0, 1 << 31, ()))
        return self.module.generate_input(**given)

    def run(self, **tensors: Any) -> Any:
        """Call ref_kernel."""
        return self.module.ref_kernel(runtime.build(self.arguments, tensors))


class Candidate:
    """custom_kernel of a submission."""

    def __init__(self, folder: Path, file: str, arguments: Any) -> None:
        self.function = runtime.load(folder / file, "submission").custom_kernel
        self.arguments = arguments

    def prepare(self, params: dict[str, Any], _: dict[str, Any]) -> dict[str, Any]:
        """Nothing is static."""
        return params

    def run(self, **tensors: Any) -> Any:
        """Call custom_kernel."""
        return self.function(runtime.build(self.arguments, tensors))
