"""Sizes that a problem in KernelBench's form does not assign at the top level of its file.

robust-kbench: parameters of get_inputs and Model, with values in config_forward.json next to the file. A problem with
AutogradFunction is about gradients, which are not judged. MultiKernelBench: get_input_groups() reads one case per line
of a JSON file that has the problem's name; the suite itself times the first one.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aisp_mcp.errors import BenchmarkError
from aisp_mcp.judge.candidate import adapted
from aisp_mcp.suites.adapters import base

PROBLEM = "problem.py"
CONFIG = "config_forward.json"
GROUP = "group"  # the name that chooses a case
_CASES = "problem.json"  # for problems that derive the name from that of their own file


def is_problem(tree: ast.Module | None) -> bool:
    """Return True if the file defines a model and its inputs."""
    return bool({"get_inputs", "get_input_groups"} & base.defined(tree)) and "Model" in base.defined(tree)


def is_backward(tree: ast.Module | None) -> bool:
    """Return True if the problem's candidates are to compute gradients."""
    return {"AutogradFunction", "forward_fn"} <= base.defined(tree)


def refuse_backward(file: Path) -> None:
    """Raises BenchmarkError UNSUPPORTED_BACKWARD."""
    message = f"{file.name} asks for gradients (AutogradFunction): only calls of Model are judged."
    raise BenchmarkError("UNSUPPORTED_BACKWARD", message, "Write a problem whose Model returns the gradients.")


def parameters(tree: ast.Module) -> frozenset[str]:
    """Parameters of get_inputs, and of Model if the file does not say what it is made with."""
    names = {"get_inputs"} if "get_init_inputs" in base.defined(tree) else {"get_inputs", "__init__"}
    model = [node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Model"]
    functions = [
        node for node in itertools.chain(tree.body, *model) if isinstance(node, ast.FunctionDef) and node.name in names
    ]
    return frozenset(
        each.arg
        for function in functions
        for each in (*function.args.args, *function.args.kwonlyargs)
        if each.arg != "self"
    )


def function(tree: ast.Module | None) -> str:
    """Name of the function that Model.forward takes as `fn` if it is given no other one; empty without it."""
    models = (
        [node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Model"] if tree else []
    )
    for node in itertools.chain(*models):
        if isinstance(node, ast.FunctionDef) and node.name == "forward":
            names = [each.arg for each in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
            values = [*node.args.defaults, *node.args.kw_defaults]  # the first names have none
            value = dict(zip(reversed(names), reversed(values), strict=False)).get("fn")
            return value.id if isinstance(value, ast.Name) and value.id in base.defined(tree) else ""
    return ""


def load(path: Path, constants: Mapping[str, Any] | None) -> Any:
    """The problem's module. Raises BenchmarkError NO_CONSTANT, which names its parameters, too."""
    try:
        return adapted.load(path, "kernelbench_problem", constants)
    except BenchmarkError as error:
        names = parameters(base.parse(path) or ast.Module([], [])) if error.code == "NO_CONSTANT" else ()
        if not names:
            raise
        hint = f"{error.hint} Its functions have the parameters {', '.join(sorted(names))}."
        raise BenchmarkError(error.code, error.message, hint) from error


def configurations(file: Path) -> list[dict[str, Any]]:
    """Values of parameters for each target of the file, from the single_* sections of its configuration."""
    config = file.with_name(CONFIG)
    if file.stem != "func_forward" or not config.is_file():
        return [{}]
    try:
        facts = json.loads(base.read_text(config))
        sections = [facts[f"single_{name}_configs"] for name in ("init", "input", "shared")]
        return [{**init, **inputs, **shared} for init, inputs, shared in itertools.product(*sections)] or [{}]
    except (ValueError, KeyError, TypeError) as error:
        message = f"{CONFIG} has no lists single_init_configs, single_input_configs and single_shared_configs."
        raise BenchmarkError("UNREADABLE", message) from error


def case(file: Path, number: int | None) -> tuple[dict[str, str], str]:
    """The file of cases that get_input_groups() reads, with one case left, by its possible names; and a sentence on it.

    Raises BenchmarkError NO_GROUP.
    """
    path, number = file.with_suffix(".json"), number or 0
    lines = [line for line in base.read_text(path).splitlines() if line.strip()] if path.is_file() else []
    if not 0 <= number < max(len(lines), 1):
        message = f"{path.name} has no case {number}: it has {len(lines)}, and the first is 0."
        raise BenchmarkError("NO_GROUP", message, f"Choose one with --set {GROUP}=0.")
    if not lines:
        return {}, "inputs are those of the first group of get_input_groups()"
    texts = dict.fromkeys((path.name, _CASES), lines[number] + "\n")
    return texts, f"inputs are those of case {number} of {len(lines)} in {path.name}; choose another with {GROUP}"


def drawn(problem: Any, given: Mapping[str, Any]) -> list[Any]:
    """Arguments of a call, made by the problem's own code."""
    if hasattr(problem, "get_inputs"):
        return list(problem.get_inputs(**accepted(problem.get_inputs, given)))
    return list(problem.get_input_groups()[0])


def accepted(function: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """The values that are parameters of the function."""
    return {name: value for name, value in given.items() if name in inspect.signature(function).parameters}


def shapes_of(file: Path, tree: Any) -> list[dict[str, Any]]:
    """Constants of each row of SHAPES, which is read and not executed; a single empty row if the file does not exist.

    Names of a row match the reference's names in capital letters if it has no others. Raises BenchmarkError UNREADABLE.
    """
    if not file.is_file():
        return [{}]
    known, shapes = adapted.assigned(tree), base.parse(file) or ast.Module([], [])
    values = adapted.assigned(shapes)
    for node in shapes.body:
        if isinstance(node, ast.Assign) and "SHAPES" in [getattr(target, "id", "") for target in node.targets]:
            try:
                rows = [dict(row) for row in ast.literal_eval(_Named(values).visit(node.value))]
            except (ValueError, TypeError) as error:
                message = f"SHAPES of {file.name} is not a list of literals and names of them."
                raise BenchmarkError("UNREADABLE", message) from error
            return [{key if key in known else key.upper(): value for key, value in row.items()} for row in rows]
    raise BenchmarkError("UNREADABLE", f"{file.name} assigns no SHAPES.")


class _Named(ast.NodeTransformer):
    """Puts the values of the file's own constants in place of their names."""

    def __init__(self, values: Mapping[str, ast.expr]) -> None:
        self.values = values

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.values.get(node.id, node)
