"""AlgoTune: a task is a class with `generate_problem(n, random_seed)`, `solve(problem)` and `is_solution(problem,
solution)`; a candidate is a file with a class `Solver` that has `solve(problem)`.

Problems and solutions are any Python values. A task therefore becomes two functions with a generator and a checker of
their own, and no pair that `bench adapt` could write.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from aisp_mcp.errors import BenchmarkError, UsageError
from aisp_mcp.judge.candidate_needs import DECLARED, compilers, requirements
from aisp_mcp.judge.functions import neighbours
from aisp_mcp.judge.functions.pair import Request
from aisp_mcp.judge.records import Skip
from aisp_mcp.store.records.run import Failure
from aisp_mcp.suites.adapters import base
from aisp_mcp.suites.adapters.base import Constants, Problem

NAME = "algotune"
TASKS, RESULTS, SIZES = "AlgoTuneTasks", "results", Path("reports", "generation.json")  # of the suite's repository
METHODS = {"generate_problem", "solve", "is_solution"}
N = 8  # the size of a task for which the suite has published none; it grows until the clock resolves the calls
_BASE = '''"""Stands in for the suite's own base class, which imports its whole harness."""


class Task:
    def __init__(self, n=None, **kwargs):
        self.n = n


def register_task(name):
    return lambda task: task
'''
_TASK = """
import random as _random
import sys as _sys

_task = {title}()


def solve(problem):
    return _task.solve(problem)


def make(seed, n):
    seed %= 2**32
    _random.seed(seed)  # some tasks draw from the global state as well, or their libraries do
    if "numpy" in _sys.modules:
        _sys.modules["numpy"].random.seed(seed)
    return (_task.generate_problem(n, random_seed=seed),)


def is_solution(problem, solution):
    return _task.is_solution(problem, solution)
"""
_SOLVER = '''"""{name} of {task}.{compiles}"""

from {module} import Solver

{declared} = {needs!r}
_solver = Solver()


def solve(problem):
    return _solver.solve(problem)
'''


@dataclass(frozen=True)
class _Task:
    """A task's file, the class in it, and the n with which the suite's calls take about 100 ms, if it is known."""

    file: Path
    title: str
    n: int | None

    @property
    def name(self) -> str:
        return base.identifier(self.file.stem)


def find(path: Path, candidates: Sequence[Path], constants: Constants) -> list[Problem]:
    """One problem per task. Raises UsageError BAD_SIZES."""
    for name, value in constants.items():
        if name != "n" or not isinstance(value, int) or value < 1:
            raise UsageError("BAD_SIZES", "The only size of an AlgoTune task is n, a whole number.", "Such as n=100.")
    problems = []
    tasks = _tasks(path)
    for task in tasks:
        near = candidates or _solvers(path, task)
        own = near if len(tasks) == 1 or not candidates else [file for file in near if _belongs(file, task)]
        n = constants.get("n", task.n or N)
        # With the suite's own n, a search for calls that are long enough would take as long as a quick verdict.
        reference = {"file": str(task.file), "title": task.title, "n": n, "grows": n != task.n}
        found = {_variant(file, task): {"file": str(file)} for file in own}
        files = {task.file.name: base.read_text(task.file)}
        summary = f"The task {task.name} of AlgoTune."
        problems.append(Problem(NAME, task.name, summary, files, reference, found))
    return problems


def requests(problems: Sequence[Problem], folder: Path) -> tuple[list[Request], list[Failure | Skip]]:
    """The functions of each candidate and its task, written below the folder, and why the others are left out."""
    found, broken = list[Request](), list[Failure | Skip]()
    for problem in problems:
        text = problem.files[Path(problem.reference["file"]).name]
        task = _write_task(problem, text, folder / problem.name)
        label = f"{NAME}:{problem.name}"
        if missing := [name for name in requirements(text, (TASKS,)) if importlib.util.find_spec(name) is None]:
            broken.append(Skip(target=label, code="NEEDS", missing=f"{', '.join(missing)}, which the task imports"))
        elif not problem.candidates:
            hint = "Name one: aisp bench verify TASK.py solver.py. Or put solver.py next to the task."
            failure = Failure(target=label, code="NO_CANDIDATE", message="No solver was found for it.", hint=hint)
            broken.append(failure)
        for name, arguments in problem.candidates.items() if not missing else ():
            try:
                solver = _write_solver(problem, name, Path(arguments["file"]), folder / problem.name)
            except BenchmarkError as error:
                broken.append(Failure(target=f"{label}_{name}", code=error.code, message=error.message))
                continue
            size, make, check = f"n={problem.reference['n']}", f"{task}:make", f"{task}:is_solution"
            grows = problem.reference["grows"]
            pair = f"{task}:solve", f"{solver}:solve", size
            found.append(Request(*pair, make=make, check=check, grows=grows))
    return found, broken


def _tasks(path: Path) -> list[_Task]:
    """The tasks of a file, a folder of tasks or the repository; for a folder of results, those that it solves."""
    path = path.resolve()
    root = _root(path)
    if path.is_file():
        files = [path] if path.suffix == ".py" else []
    else:
        below = [*path.glob("*.py"), *path.glob("*/*.py"), *path.glob(f"{TASKS}/*/*.py")]
        solved = {file.parent.name for file in below if file.name == "solver.py"} if root != path else set()
        tasks = [root / TASKS / name / f"{name}.py" for name in sorted(solved)] if root else []
        files = [*sorted(below), *(file for file in tasks if file.is_file() and file not in below)]
    sizes = _published(root)
    found = ((file, _title(file)) for file in files)
    return [_Task(file, title, sizes.get(file.stem)) for file, title in found if title]


def _root(path: Path) -> Path | None:
    """The suite's repository that the path is in."""
    whole = path.resolve()
    return next((folder for folder in (whole, *whole.parents) if (folder / TASKS).is_dir()), None)


def _published(root: Path | None) -> dict[str, int]:
    """By task, the n for which the suite measured calls of about 100 ms."""
    if root is None or not (root / SIZES).is_file():
        return {}
    rows = json.loads(base.read_text(root / SIZES))
    return {name: int(row["n"]) for name, row in rows.items() if row.get("n")}


def _title(file: Path) -> str | None:
    """The name of the class of a task in a file; the base of all tasks is none."""
    tree = base.parse(file) if set(base.read_text(file).replace("(", " ").split()) >= METHODS else None
    for node in tree.body if tree else ():
        if isinstance(node, ast.ClassDef) and node.bases and _methods(node) >= METHODS:
            return node.name
    return None


def _methods(node: ast.ClassDef) -> set[str]:
    return {part.name for part in node.body if isinstance(part, ast.FunctionDef)}


def _solvers(path: Path, task: _Task) -> list[Path]:
    """The solvers next to the task, or those that the path or the whole repository has for it."""
    if near := [file for file in sorted(task.file.parent.glob("solver*.py")) if _is_solver(file)]:
        return near
    root = _root(path)
    if root is None:
        return []
    within = path.resolve()
    every = sorted((root / RESULTS).glob(f"*/{task.file.stem}/solver.py"))
    inside = [file for file in every if file.is_relative_to(within)]
    return inside or every


def _is_solver(file: Path) -> bool:
    tree = base.parse(file)
    return any(isinstance(node, ast.ClassDef) and node.name == "Solver" for node in (tree.body if tree else ()))


def _belongs(file: Path, task: _Task) -> bool:
    return task.file.stem == file.parent.name or file.stem.startswith(task.file.stem)


def _variant(file: Path, task: _Task) -> str:
    """The candidate's name: its file's, or in the suite's results its model's."""
    folder = file.resolve().parent
    is_result = folder.name == task.file.stem and folder != task.file.parent
    return base.identifier(folder.parent.name if is_result else file.stem)


def _write_task(problem: Problem, text: str, folder: Path) -> Path:
    """The task with functions that call it, and what it imports of the suite."""
    package = folder / TASKS
    package.mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").touch()
    (package / "base.py").write_text(_BASE, "utf-8")
    written = folder / f"{problem.name}.py"
    written.write_text(text + _TASK.format(title=problem.reference["title"]), "utf-8")
    return written


def _write_solver(problem: Problem, name: str, file: Path, folder: Path) -> Path:
    """The solver with a function that calls it. Raises BenchmarkError NOT_PYTHON, NO_SOLVER."""
    base.parse_candidate(file)
    if not _is_solver(file):
        raise BenchmarkError("NO_SOLVER", f"{file.name} defines no class Solver.")
    own = folder / f"{name}_files"
    own.mkdir(parents=True, exist_ok=True)
    text = base.read_text(file)
    module = f"solver_{name}"
    (own / f"{module}.py").write_text(text, "utf-8")
    neighbours.copy(file, own)
    near = {other.stem for other in own.iterdir()} | set(sys.stdlib_module_names)
    written = own / f"{name}.py"
    needs = requirements(text, near)
    parts = {"module": module, "declared": DECLARED, "needs": needs, "compiles": compilers(text)}
    written.write_text(_SOLVER.format(name=name, task=problem.name, **parts), "utf-8")
    return written
