"""KernelBench: `Model` and `ModelNew` are modules, `get_inputs()` and `get_init_inputs()` make their arguments.

Field names: ScalingIntelligence/KernelBench, README. A problem is a file that defines Model and get_inputs; a candidate
is a file that defines ModelNew, or a class ModelNew in the problem's own file. A candidate's own get_inputs is never
called.

Other suites keep this form and their sizes elsewhere. KernelBench-Hard: the problem is reference.py, its sizes are the
rows of shapes.py, a solution defines Model itself, and problem.yaml has the tolerance and operators that solutions may
not call. robust-kbench: parameters of get_inputs and Model, with values in config_forward.json next to the file; a
problem with AutogradFunction is about gradients, which are not judged. MultiKernelBench: get_input_groups() reads one
case per line of a JSON file that has the problem's name; the suite itself times the first one.
"""

from __future__ import annotations

import ast
import itertools
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from aisp_mcp.errors import BenchmarkError
from aisp_mcp.judge.candidate import adapted
from aisp_mcp.judge.candidate.formats.kernelbench import PROBLEM, parameters
from aisp_mcp.judge.candidate.formats.kernelbench import Candidate as Candidate
from aisp_mcp.judge.candidate.formats.kernelbench import Reference as Reference
from aisp_mcp.suites.adapters import base
from aisp_mcp.suites.adapters.base import Constants, Problem

NAME = "kernelbench"
CONFIG = "config_forward.json"
GROUP = "group"  # the name that chooses a case
_CASES = "problem.json"  # for problems that derive the name from that of their own file


def find(path: Path, candidates: Sequence[Path], constants: Constants) -> list[Problem]:
    """The problems of a file or folder, with candidates that are named, or found in these files or next to them.

    Raises BenchmarkError NO_MODEL_NEW for a candidate without a model, AMBIGUOUS for a file with two readings.
    """
    trees = {file: base.parse(file) for file in base.python_files(path)}
    problems = {file: tree for file, tree in trees.items() if _is_problem(tree)}
    if problems and all(map(_is_backward, problems.values())):
        _refuse_backward(next(iter(problems)))
    problems = {file: tree for file, tree in problems.items() if not _is_backward(tree)}
    reference = next((file for file in problems if file.stem == "reference"), None)
    if reference is not None:  # with this file, the folder is one problem, and solutions define Model as it does
        near = [file for file, tree in trees.items() if file.stem.startswith("solution")]
        return _of_shapes(reference, problems[reference], list(candidates) or near, constants)
    near = [file for file, tree in trees.items() if "ModelNew" in base.defined(tree)]
    if not candidates:
        _refuse_ambiguous([file for file in near if file in problems], list(problems))
    owned = base.owned([file.stem for file in problems], list(candidates) or [f for f in near if f not in problems])
    return [
        each
        for file, tree in problems.items()
        for each in _of_configurations(Found(file, tree, owned[file.stem], own=not candidates), constants)
    ]


def _of_configurations(parts: Found, constants: Constants) -> list[Problem]:
    """One problem per set of values for its parameters, named after its folder if a file there gives them."""
    rows = _configurations(parts.file)
    name = base.identifier(parts.file.resolve().parent.name if rows[0] else parts.file.stem)
    names = [name if len(rows) == 1 else f"{name}_{at}" for at in range(len(rows))]
    return [problem(replace(parts, given=row), each, constants) for each, row in zip(names, rows, strict=True)]


def _refuse_ambiguous(both: Sequence[Path], problems: Sequence[Path]) -> None:
    """Refuse a file with Model, ModelNew and get_inputs next to the problem whose name begins its own. Raises
    AMBIGUOUS.
    """
    for file in both:
        for other in problems:
            if other != file and file.stem.startswith(other.stem):
                raise BenchmarkError(
                    "AMBIGUOUS",
                    f"{file.name} can be read as a candidate of {other.name} (by its ModelNew), or as a separate "
                    "problem with its own candidate (by its Model, get_inputs and ModelNew).",
                    f"Name it as the candidate of {other.name}, or give {file.name} alone as the path.",
                )


@dataclass(frozen=True)
class Found:
    """A problem's file and the files of its candidates.

    own: include the file's own ModelNew. shaped: the layout is reference.py and solution.py, in which a solution's
    class is called Model. given: values of parameters of get_inputs and Model.
    """

    file: Path
    tree: Any
    candidates: Sequence[Path]
    own: bool = True
    shaped: bool = False
    given: Mapping[str, Any] = field(default_factory=dict)


def problem(parts: Found, name: str, constants: Constants) -> Problem:
    """The problem of a file. Only the parts that Model and its inputs need are executed as the baseline."""
    names = ("Model", "get_inputs", "get_input_groups", "get_init_inputs")
    text, disclosed = base.read_text(parts.file), list[str]()
    files, candidates = {PROBLEM: text}, {}
    settings = _settings(parts, constants)
    if "get_inputs" not in base.defined(parts.tree):
        cases, sentence = _case(parts.file, settings["constants"].pop(GROUP, None))
        files |= cases
        disclosed.append(sentence)
    if "ModelNew" in base.defined(parts.tree):
        files[PROBLEM], reached = needed_by(parts.tree, names)
        if "ModelNew" in reached:
            raise BenchmarkError(
                "AMBIGUOUS", f"In {parts.file.name}, Model uses ModelNew: the baseline is not separate."
            )
        if parts.own:
            files["own.py"], candidates["own"] = text, {"file": "own.py", "kind": "ModelNew", **settings}
            disclosed.append(f"baseline and candidate were taken from the same file, {parts.file.name}")
    for candidate in parts.candidates:
        variant = base.variant(candidate.stem, parts.file.stem)
        beside = base.sidecars(candidate, parts.file)
        path = f"{variant}/{candidate.name}" if beside else f"{variant}.py"
        files[path] = base.read_text(candidate)
        files |= {f"{variant}/{name}": text for name, text in beside.items()}
        candidates[variant] = {"file": path, **_entry(candidate, parts), **settings}
        disclosed += [f"{candidate.name} is judged with the files that it names: {', '.join(beside)}"] if beside else []
    summary = base.first_line(parts.tree, f"KernelBench problem {parts.file.stem}.")
    return Problem(NAME, name, summary, files, settings, candidates, disclosed=tuple(disclosed))


def _settings(parts: Found, constants: Constants) -> dict[str, Any]:
    """Keyword arguments of Reference. Values of parameters are not those of names at the top level."""
    named = parameters(parts.tree) - adapted.assigned(parts.tree).keys()
    given = {**parts.given, **{name: value for name, value in constants.items() if name in named}}
    settings: dict[str, Any] = {"constants": {name: value for name, value in constants.items() if name not in named}}
    return settings | ({"given": given} if given else {}) | ({"mode": "eval"} if parts.shaped else {})


def _entry(candidate: Path, parts: Found) -> dict[str, str]:
    """Name of the candidate's class, or of the function that it replaces, as an argument of Candidate. Raises
    BenchmarkError NOT_PYTHON, NO_MODEL_NEW or AMBIGUOUS.
    """
    tree = base.parse_candidate(candidate)
    classes = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    names = base.defined(tree)
    if parts.shaped and {"Model", "ModelNew"} <= classes:
        raise BenchmarkError(
            "AMBIGUOUS",
            f"{candidate.name} defines both Model and ModelNew, and either could be the candidate.",
            "Keep the one you want judged, and rename the other.",
        )
    entries = {"ModelNew": "kind", "Model": "kind"}
    if replaced := default_function(parts.tree):
        entries[replaced] = "function"
    if name := next((name for name in entries if name in names), None):
        return {entries[name]: name}
    message = f"{candidate.name} defines {' and '.join(f'no {name}' for name in entries)}."
    raise BenchmarkError("NO_MODEL_NEW", message, "See docs/adapters.md.")


def _of_shapes(file: Path, tree: Any, candidates: Sequence[Path], constants: Constants) -> list[Problem]:
    """One problem per row of SHAPES in shapes.py, or a single one; the tolerance is that of problem.yaml."""
    shapes = shapes_of(file.with_name("shapes.py"), tree)
    rows = list({str(row): row for row in ({**shape, **constants} for shape in shapes)}.values())
    name, parts = base.identifier(file.resolve().parent.name), Found(file, tree, candidates, shaped=bool(shapes[0]))
    allowed, forbidden = _rules(file.with_name("problem.yaml"))
    names = [name if len(rows) == 1 else f"{name}_{at}" for at in range(len(rows))]
    problems = [problem(parts, each, row) for each, row in zip(names, rows, strict=True)]
    return [replace(each, tolerance=allowed, forbidden=forbidden) for each in problems]


def _is_problem(tree: ast.Module | None) -> bool:
    """Return True if the file defines a model and its inputs."""
    return bool({"get_inputs", "get_input_groups"} & base.defined(tree)) and "Model" in base.defined(tree)


def _is_backward(tree: ast.Module | None) -> bool:
    """Return True if the problem's candidates are to compute gradients."""
    return {"AutogradFunction", "forward_fn"} <= base.defined(tree)


def _refuse_backward(file: Path) -> None:
    """Raises BenchmarkError UNSUPPORTED_BACKWARD."""
    message = f"{file.name} asks for gradients (AutogradFunction): only calls of Model are judged."
    raise BenchmarkError("UNSUPPORTED_BACKWARD", message, "Write a problem whose Model returns the gradients.")


def default_function(tree: ast.Module | None) -> str:
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


def _configurations(file: Path) -> list[dict[str, Any]]:
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


def _case(file: Path, number: int | None) -> tuple[dict[str, str], str]:
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


def _rules(file: Path) -> tuple[dict[str, float], tuple[str, ...]]:
    """Largest absolute and relative difference by dtype, and forbidden operators; empty if the file does not exist.

    Raises BenchmarkError UNREADABLE.
    """
    import yaml

    try:
        facts = yaml.safe_load(base.read_text(file)) if file.is_file() else {}
    except yaml.YAMLError as error:
        raise BenchmarkError("UNREADABLE", f"{file.name} is not YAML: {error}.") from error
    rules = facts if isinstance(facts, dict) else {}
    values = rules.get("tolerance") or {}
    tolerance = {str(key).removeprefix("torch."): float(value) for key, value in values.items() if _is_number(value)}
    return tolerance, tuple(map(str, rules.get("forbidden") or ()))


def _is_number(value: Any) -> bool:
    try:
        return float(value) >= 0
    except (TypeError, ValueError):
        return False


def needed_by(tree: ast.Module, names: Collection[str]) -> tuple[str, frozenset[str]]:
    """Source of the statements that bind these names or, through others, the names they use; and all names reached.

    Statements that bind nothing, such as calls and settings of a library, are left out; future and star imports stay.
    """
    binds = {statement: _bound(statement) for statement in tree.body}
    reached, statements = set(names), set[ast.stmt]()
    grown = True
    while grown:
        grown = False
        for statement, bound in binds.items():
            if statement not in statements and (bound & reached or _always(statement)):
                statements.add(statement)
                reached |= _used(statement)
                grown = True
    body = [statement for statement in tree.body if statement in statements]
    return ast.unparse(ast.Module(body, [])) + "\n", frozenset(reached)


def _always(statement: ast.stmt) -> bool:
    if not isinstance(statement, ast.ImportFrom):
        return False
    return statement.module == "__future__" or any(alias.name == "*" for alias in statement.names)


def _bound(statement: ast.stmt) -> set[str]:
    """Names that the statement gives a value at the top level, also inside if, try and with."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {statement.name}
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return {alias.asname or alias.name.partition(".")[0] for alias in statement.names}
    bound = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    for block in ("body", "orelse", "finalbody", "handlers"):
        for inner in getattr(statement, block, None) or ():
            bound |= _bound(inner)
    return bound


def _used(statement: ast.stmt) -> set[str]:
    return {node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
