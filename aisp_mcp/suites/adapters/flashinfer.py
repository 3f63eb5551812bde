"""FlashInfer-Trace and SOL-ExecBench: `definition.json`, `workload.jsonl` and solutions in JSON.

Field names: docs/definition.md, workload.md and solution.md of NVIDIA/SOL-ExecBench, and the FlashInfer-Trace schema. A
folder is one definition, or a data set with the folders definitions, workloads and solutions; every line of a workload
file is one problem; a solution is a file with `sources` and `spec`.
"""

from __future__ import annotations

import ast
import json
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from aisp_mcp.errors import BenchmarkError
from aisp_mcp.judge.candidate.formats.flashinfer import Candidate as Candidate
from aisp_mcp.judge.candidate.formats.flashinfer import Reference as Reference
from aisp_mcp.suites.adapters import base
from aisp_mcp.suites.adapters.base import Constants, Problem

NAME = "flashinfer"
MAX_WORKLOADS = 32
_LANGUAGES = ("python", "triton", "pytorch")
_NATIVE = {"cpp": ".cpp", "cuda": ".cu", "cuda_cpp": ".cu"}
_OPERATORS: dict[type, Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: lambda a, b: a // b if a % b == 0 else a / b,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}


@dataclass(frozen=True)
class _Files:
    """Files of one definition."""

    definition: Path
    workloads: list[Path]
    solutions: list[Path]


def find(path: Path, candidates: Sequence[Path], constants: Constants) -> list[Problem]:
    """One problem per workload. constants: sizes of variable axes, instead of the workloads' own."""
    return [problem for files in _files(path) for problem in _problems(files, candidates, constants)]


def _files(path: Path) -> list[_Files]:
    """Definitions at a path: `definition.json` of a folder, or those of a data set."""
    folder = path if path.is_dir() else path.parent
    single = folder / "definition.json"
    if single.is_file() and path.name in (folder.name, single.name):
        return [_Files(single, sorted(folder.glob("workload*.jsonl")), sorted(folder.glob("solution*.json")))]
    if path.is_dir():
        root, definitions = path, sorted((path / "definitions").rglob("*.json"))
    else:
        above = next((parent for parent in path.parents if parent.name == "definitions"), None)
        root, definitions = (above.parent if above else path.parent), [path] if above and path.suffix == ".json" else []
    solutions: dict[str, list[Path]] = {}
    for file in sorted((root / "solutions").rglob("*.json")) if definitions else ():
        solutions.setdefault(str(_json(file).get("definition")), []).append(file)
    workloads = {file.stem: file for file in (root / "workloads").rglob("*.jsonl")} if definitions else {}
    return [
        _Files(
            definition,
            [workloads[definition.stem]] if definition.stem in workloads else [],
            solutions.get(definition.stem, []),
        )
        for definition in definitions
    ]


def _problems(files: _Files, candidates: Sequence[Path], constants: Constants) -> list[Problem]:
    definition = _json(files.definition)
    for key in ("name", "axes", "inputs", "outputs", "reference"):
        if key not in definition:
            raise BenchmarkError("UNREADABLE", f"{files.definition.name} lacks the field '{key}'.")
    solutions = {base.variant(file.stem, "solution"): _json(file) for file in candidates or files.solutions}
    solutions = {base.identifier(str(solution.get("name") or name)): solution for name, solution in solutions.items()}
    workloads = _workloads(files)[:MAX_WORKLOADS]
    refused = {} if candidates else _refused(solutions)
    usable = {name: solution for name, solution in solutions.items() if name not in refused}
    problems = [_problem(definition, workload, f"w{at}", usable, constants) for at, workload in enumerate(workloads)]
    return [replace(problem, unused=(*problem.unused, *refused.values())) for problem in problems]


def _refused(solutions: Mapping[str, dict[str, Any]]) -> dict[str, str]:
    """Reasons, by name, why solutions of a folder cannot be used here because of their language."""
    reasons: dict[str, str] = {}
    for name, solution in solutions.items():
        try:
            _native(name, solution) if _suffix(solution) else _solution(name, solution, {}, {})
        except BenchmarkError as error:
            if error.code != "UNSUPPORTED_LANGUAGE":
                raise
            reasons[name] = error.message
    return reasons


def _json(file: Path) -> dict[str, Any]:
    try:
        data = json.loads(base.read_text(file))
    except ValueError as error:
        raise BenchmarkError("UNREADABLE", f"{file.name} is not JSON: {error}.") from error
    if not isinstance(data, dict):
        raise BenchmarkError("UNREADABLE", f"{file.name} contains no object.")
    return data


def _workloads(files: _Files) -> list[dict[str, Any]]:
    """The workloads themselves, or those within trace records."""
    if not files.workloads:
        raise BenchmarkError("NO_WORKLOAD", f"{files.definition.name} has no workload file.", "Add workload.jsonl.")
    rows = files.workloads[0]
    try:
        lines = [json.loads(line) for line in base.read_text(rows).splitlines() if line.strip()]
    except ValueError as error:
        raise BenchmarkError("UNREADABLE", f"{rows.name} is not JSON lines: {error}.") from error
    return [line.get("workload") or line for line in lines if isinstance(line, dict)]


def _problem(
    definition: dict[str, Any],
    workload: dict[str, Any],
    at: str,
    solutions: Mapping[str, dict[str, Any]],
    constants: Constants,
) -> Problem:
    axes = axis_sizes(definition["axes"], {**workload.get("axes", {}), **constants})
    files = {"reference.py": definition["reference"]}
    inputs = {
        name: {"shape": _shape(spec, axes), "dtype": spec["dtype"], **workload.get("inputs", {}).get(name, {})}
        for name, spec in definition["inputs"].items()
    }
    recorded = sorted({tensor["path"] for tensor in inputs.values() if tensor.get("type") == "safetensors"})
    if recorded:
        raise BenchmarkError(
            "RECORDED_INPUTS",
            f"The workload reads its inputs from {recorded[0]}: recorded values can be neither secret nor fresh.",
            "Give these inputs the type random or custom.",
        )
    outputs = {
        name: {"shape": _shape(tensor, axes), "dtype": tensor["dtype"]}
        for name, tensor in definition["outputs"].items()
    }
    entry = definition.get("custom_inputs_entrypoint")
    reference = {"inputs": inputs, "axes": axes, "entry": entry, "outputs": outputs}
    native = {name: _native(name, solution) for name, solution in solutions.items() if _suffix(solution)}
    usable_solutions = {
        name: _solution(name, solution, files, outputs) for name, solution in solutions.items() if name not in native
    }
    title = base.identifier(f"{definition['name']}_{at}")
    summary = str(definition.get("description") or f"{definition['name']}: {axes}")
    unused = ("tolerance of the workload",)
    return Problem(NAME, title, summary, files, reference, usable_solutions, unused=unused, native=native)


def _languages(solution: Mapping[str, Any]) -> list[Any]:
    spec = solution.get("spec", {})
    return spec.get("languages") or [spec.get("language")]


def _suffix(solution: Mapping[str, Any]) -> str | None:
    """Suffix of a solution written only in C++ or CUDA C++."""
    suffixes = {_NATIVE.get(language) for language in _languages(solution)}
    return suffixes.pop() if len(suffixes) == 1 else None


def _native(name: str, solution: Mapping[str, Any]) -> tuple[str, str]:
    """(suffix, text) of a solution that the harness compiles and calls by its launch header."""
    suffix, sources = _suffix(solution) or "", solution.get("sources", ())
    if len(sources) != 1 or not base.has_launch_header(sources[0]["content"]):
        raise BenchmarkError(
            "UNSUPPORTED_LANGUAGE",
            f"The solution '{name}' is written in {_languages(solution)[0]}, not as one file with a launch header.",
            "Bindings of torch and TVM are not built: see docs/native.md for the header.",
        )
    return suffix, sources[0]["content"]


def _solution(name: str, solution: dict[str, Any], files: dict[str, str], outputs: dict[str, Any]) -> dict[str, Any]:
    """Arguments of Candidate; adds the solution's sources to the files."""
    spec = solution.get("spec", {})
    languages = _languages(solution)
    if not all(language in _LANGUAGES for language in languages):
        raise BenchmarkError(
            "UNSUPPORTED_LANGUAGE",
            f"The solution '{name}' is written in {', '.join(map(str, languages))}.",
            "Python, Triton, C++ and CUDA C++ are supported.",
        )
    for source in solution.get("sources", ()):
        path = PurePosixPath(source["path"])
        if path.is_absolute() or ".." in path.parts:
            raise BenchmarkError("UNREADABLE", f"A source of '{name}' leaves its folder: {path}.")
        files[f"{name}/{path}"] = source["content"]
    file, _, function = str(spec.get("entry_point", "main.py::run")).partition("::")
    passed = outputs if spec.get("destination_passing_style", True) else None
    return {"file": f"{name}/{file}", "function": function or "run", "outputs": passed}


def _shape(spec: Mapping[str, Any], axes: Mapping[str, int]) -> list[int] | None:
    return None if spec["shape"] is None else [axis if isinstance(axis, int) else axes[axis] for axis in spec["shape"]]


def axis_sizes(axes: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, int]:
    """Every axis as a number: constants, variables as given, then expressions. Raises BenchmarkError BAD_AXIS."""
    sizes = {name: int(axis["value"]) for name, axis in axes.items() if axis["type"] == "const"}
    sizes |= {name: int(size) for name, size in given.items() if axes.get(name, {}).get("type") == "var"}
    for name, axis in axes.items():
        try:
            if axis["type"] == "expr":
                sizes[name] = int(_evaluate(ast.parse(axis["expression"], mode="eval").body, sizes))
            sizes[name] = int(sizes[name])
        except (KeyError, SyntaxError, TypeError, ZeroDivisionError) as error:
            raise BenchmarkError("BAD_AXIS", f"The axis '{name}' has no size: {error}.") from error
    return sizes


def _evaluate(node: ast.expr, names: Mapping[str, int]) -> Any:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return node.value
    if isinstance(node, ast.Name):
        return names[node.id]
    if isinstance(node, ast.BinOp):
        return _OPERATORS[type(node.op)](_evaluate(node.left, names), _evaluate(node.right, names))
    if isinstance(node, ast.UnaryOp):
        return _OPERATORS[type(node.op)](_evaluate(node.operand, names))
    raise TypeError("not arithmetic")
