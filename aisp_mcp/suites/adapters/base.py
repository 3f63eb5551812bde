"""Records shared by all formats: a problem as found on disk, and the facts about its recorded inputs.

A format is two modules of its name. The one of this package has `find(path, candidates, constants) -> list[Problem]`,
which reads and parses files and runs nothing. The one in judge/candidate/formats/ has the two classes that run, only in
child processes: `Reference` and `Candidate`, see judge/candidate/adapted.py. Pairs that earlier versions wrote import
both from here, so the modules of this package go on offering them.
"""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from aisp_mcp.errors import BenchmarkError
from aisp_mcp.judge.candidate.adapted import Constants as Constants
from aisp_mcp.judge.candidate.adapted import defined as defined
from aisp_mcp.judge.functions.sources import read_text as read_text

MAX_PROBLEMS = 300
VALUES_ALONE = ("kernelbench", "gpumode", "flashinfer", "get_benchmark")  # formats whose own checks ignore strides
NATIVE = (".cpp", ".cu")  # suffixes of candidates that the harness compiles
MAX_PATH = 4096  # characters
SIDECARS = (".py", ".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".inl", ".json", ".ptx")


@dataclass(frozen=True)
class Problem:
    """One problem of another suite, and its candidates.

    files: text by path, relative to the folder that Reference and Candidate are given. reference, candidates: keyword
    arguments of the two classes, the latter by variant name. unused: parts of the format that have no effect here.
    native: (suffix, text) of candidates in C++ or CUDA C++, by variant name. tolerance: the problem's own largest
    absolute and relative difference, by dtype. disclosed: sentences on facts that the format cannot hide from a
    candidate. forbidden: operators that the problem's own rules forbid. stand_ins: packages that the
    format replaces, so that candidates may import them where they are not installed.
    """

    format: str
    name: str
    summary: str
    files: Mapping[str, str]
    reference: Mapping[str, Any]
    candidates: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    goal: str = "speed"
    unused: tuple[str, ...] = ()
    native: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    tolerance: Mapping[str, float] = field(default_factory=dict)
    disclosed: tuple[str, ...] = ()
    forbidden: tuple[str, ...] = ()
    stand_ins: tuple[str, ...] = ()


@dataclass(frozen=True)
class TensorFacts:
    """One tensor of a problem and how the harness makes it.

    role: input (new for every call) or param (static). how: normal (mean, sd), uniform (low, high), integers (low,
    high), booleans (share that is true), permutation, recipe (the problem's own code under a secret seed) or fixed
    (the problem's code gives the same values every time). order: axes from the largest stride to the smallest.
    """

    name: str
    role: str
    dtype: str
    shape: tuple[int, ...]
    how: str
    numbers: tuple[float, ...] = ()
    order: tuple[int, ...] = ()


@dataclass(frozen=True)
class Recorded:
    """Result of two runs of a problem's recipe. arguments: the call's structure as Python source, see adapted.Slot.

    seeded: the code sets its own seeds. spread: static tensors of one repeated value that get several values. outputs:
    their dtypes. indices: outputs that hold positions, see bench.Tolerance. settings: keyword arguments of Reference
    and Candidate, found by the recording.
    """

    tensors: tuple[TensorFacts, ...]
    arguments: str
    in_place: tuple[str, ...] = ()
    seeded: bool = False
    spread: tuple[str, ...] = ()
    goal: str = "speed"
    notes: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    indices: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def parse(cls, data: Mapping[str, Any]) -> Recorded:
        """The record that the child wrote as JSON."""
        tensors = tuple(TensorFacts(**_tuples(row)) for row in data["tensors"])
        lists: dict[str, Any] = {key: tuple(data[key]) for key in ("in_place", "spread", "notes", "outputs")}
        fields: dict[str, Any] = {key: data[key] for key in ("seeded", "goal", "indices", "settings")}
        return cls(tensors, data["arguments"], **fields, **lists)


def _tuples(data: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in data.items()}


class Format(Protocol):
    """Interface of a module of this package."""

    NAME: str

    def find(self, path: Path, candidates: Sequence[Path], constants: Constants) -> list[Problem]:
        """The problems at this path, none if its files are not of this format. Raises BenchmarkError."""


def readable(path: Path) -> bool:
    """Return True if the path is a file or folder that this user may read."""
    return "\0" not in str(path) and os.access(path, os.R_OK)


def parse(path: Path) -> ast.Module | None:
    """The syntax tree of a Python file; None if it is not Python. Raises BenchmarkError UNREADABLE."""
    try:
        return ast.parse(read_text(path))
    except (SyntaxError, ValueError, RecursionError):
        return None


def parse_candidate(path: Path) -> ast.Module:
    """The syntax tree of a candidate. Raises BenchmarkError NOT_PYTHON, which names the line, or UNREADABLE."""
    if (tree := parse(path)) is not None:
        return tree
    try:
        ast.parse(read_text(path))
        reason = "it cannot be parsed"
    except (SyntaxError, ValueError, RecursionError) as error:
        at = getattr(error, "lineno", None)
        reason = f"{getattr(error, 'msg', error)}" + (f" in line {at}" if at else "")
    hint = "Give a file that contains only the solution, without text around it."
    raise BenchmarkError("NOT_PYTHON", f"{path.name} is not a Python file: {reason}.", hint)


def sidecars(candidate: Path, problem: Path) -> dict[str, str]:
    """Texts of the files next to a candidate that it reads or imports, by name. Their names are in its text, or in that
    of another of them. problem: the problem's own file, if they import it.
    """
    near = [file for file in _neighbours(candidate) if file != problem]
    found, texts = dict[str, str](), [read_text(candidate)]
    while texts:
        text = texts.pop()
        named = [file for file in near if _names(text, file) or _imports(text, file)]
        for file in [*named, *([problem] if _imports(text, problem) else [])]:
            if file.name not in found:
                found[file.name] = read_text(file)
                texts.append(found[file.name])
    return found


def loaded_neighbours(candidate: Path) -> list[str]:
    """Names of the files next to a candidate that its code imports or has in a string, without those in comments."""
    tree = parse(candidate)
    if tree is None:
        return []
    shown = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}  # docstrings
    strings = {str(node.value) for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in shown}
    text = read_text(candidate)
    return [
        file.name
        for file in _neighbours(candidate)
        if _imports(text, file) or any(Path(string).name == file.name for string in strings if len(string) < MAX_PATH)
    ]


def _neighbours(candidate: Path) -> list[Path]:
    """Files next to a candidate that it could read or import; links are not followed."""
    near = (file for file in sorted(candidate.parent.iterdir()) if file.suffix in SIDECARS and file != candidate)
    return [file for file in near if file.is_file() and not file.is_symlink()]


def _names(text: str, file: Path) -> bool:
    return bool(re.search(rf"(?<![\w.-]){re.escape(file.name)}\b", text))


def _imports(text: str, file: Path) -> bool:
    if file.suffix != ".py" or file.stem in sys.stdlib_module_names:
        return False
    name = re.escape(file.stem)
    lines = rf"^[ \t]*(?:from[ \t]+{name}\b|import[ \t][^#\n]*\b{name}\b)"
    return bool(re.search(lines, text, re.MULTILINE))


def python_files(path: Path) -> list[Path]:
    """The file itself, or the Python files of a folder by name."""
    if path.is_dir():
        return sorted(file for file in path.glob("*.py") if file.is_file())[: 10 * MAX_PROBLEMS]
    return [path] if path.suffix == ".py" else []


def has_launch_header(text: str) -> bool:
    """Return True if the first comment marks a C++ candidate; the harness reads the header itself."""
    return text.lstrip().startswith("/*") and "\nlaunch:" in text.partition("*/")[0]


def identifier(text: str) -> str:
    """A name that fits into a file name: lower case letters, digits, underscores."""
    name = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_").lower()
    return name or "problem"


def first_line(tree: ast.Module | None, otherwise: str) -> str:
    """The first line of a module's docstring."""
    doc = (ast.get_docstring(tree) or "") if tree else ""
    return doc.strip().partition("\n")[0] or otherwise


def owned(stems: Sequence[str], candidates: Sequence[Path]) -> dict[str, list[Path]]:
    """Candidate files by the problem they belong to: the one with the longest stem that begins theirs, or
    the only one.
    """
    paths: dict[str, list[Path]] = {stem: [] for stem in stems}
    for file in candidates:
        fitting = [stem for stem in stems if file.stem.startswith(stem)]
        owner = max(fitting, key=len) if fitting else stems[0] if len(stems) == 1 else None
        if owner is not None:
            paths[owner].append(file)
    return paths


def variant(stem: str, problem: str) -> str:
    """The variant's name: the candidate's stem without the problem's."""
    return identifier(stem.removeprefix(problem)) if stem != problem else "candidate"
