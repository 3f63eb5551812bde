"""pytest-benchmark: test functions with the fixture `benchmark`, which call `benchmark(function, *args, **kwargs)`.

The test named baseline, reference or naive is the baseline of the others in its file; otherwise the first test of a
group is the baseline of its group, and every other test is independent. A test of the same name in a candidate file is
a candidate. If a test needs more than the fixture, such as parameters, other fixtures or its package, pytest runs it up
to its call, in a copy of its project.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from aisp_mcp.errors import BenchmarkError
from aisp_mcp.judge.candidate.formats.pytest_benchmark import AS_IT_STANDS, FIXTURES, PROBLEM, SOURCES
from aisp_mcp.judge.candidate.formats.pytest_benchmark import Candidate as Candidate
from aisp_mcp.judge.candidate.formats.pytest_benchmark import Reference as Reference
from aisp_mcp.suites.adapters import base
from aisp_mcp.suites.adapters.base import Constants, Problem

NAME = "pytest_benchmark"
_BASELINES = ("baseline", "reference", "naive")
_ROOTS = ("pyproject.toml", "setup.py", "setup.cfg", "pytest.ini", "tox.ini", ".git")
_SETTINGS = ("pyproject.toml", "pytest.ini", "tox.ini", "setup.cfg")
_MAX_FILES, _MAX_BYTES = 1500, 16 << 20
_MAX_PROBLEMS = 50  # of one file
_UNUSED = ("rounds, warm-up and calibration of pytest-benchmark", "assertions after the measured call")


def find(path: Path, candidates: Sequence[Path], constants: Constants) -> list[Problem]:
    """One problem per baseline of each file that contains tests with the fixture."""
    return [
        problem
        for file in base.python_files(path)
        if file not in candidates and (tree := base.parse(file)) and _tests(tree)
        for problem in _problems(file, tree, candidates, constants)
    ]


def _problems(file: Path, tree: ast.Module, candidates: Sequence[Path], constants: Constants) -> list[Problem]:
    """Problems of one file; with named candidates, those that have one."""
    files = _project(file, tree, list(_tests(tree)))
    own, variants = next(iter(files)), baselines(_tests(tree))
    stem, settings = base.identifier(file.stem.removeprefix("test_")), {"constants": dict(constants)}
    named = {each: list(_tests(base.parse(each))) for each in candidates}
    problems = []
    for baseline, others in variants.items():
        by_variant: dict[str, Any] = {}
        if not candidates:
            by_variant = {_short(name): {"file": own, "test": name} for name in others}
        texts = dict(files)
        for candidate, tests in named.items():
            for name in tests if len(variants) == 1 else [each for each in tests if _short(each) == _short(baseline)]:
                variant = base.identifier(f"{candidate.stem}_{_short(name)}")
                texts[f"{variant}.py"] = base.read_text(candidate)
                by_variant[variant] = {"file": f"{variant}.py", "test": name}
        if candidates and not by_variant:
            continue
        reference = {"test": baseline, "file": own, **settings}
        by_variant = {name: {**each, **settings} for name, each in by_variant.items()}
        summary = base.first_line(tree, f"{baseline} of {file.name}.")
        name = stem if len(variants) == 1 else base.identifier(f"{stem}_{_short(baseline)}")
        problems.append(Problem(NAME, name, summary, texts, reference, by_variant, unused=_UNUSED))
    return problems[:_MAX_PROBLEMS]


def baselines(tests: Mapping[str, str]) -> dict[str, list[str]]:
    """Tests that are compared with each baseline: all others if one is called baseline, reference or naive; otherwise
    those of a group with its first; a test without a group is independent. tests: groups by name.
    """
    if named := next((name for name in tests if any(word in name for word in _BASELINES)), None):
        return {named: [name for name in tests if name != named]}
    compared: dict[str, list[str]] = {}
    first: dict[str, str] = {}
    for name, group in tests.items():
        if group and group in first:
            compared[first[group]].append(name)
        else:
            compared[name] = []
            first[group] = name
    return compared


def _short(test: str) -> str:
    return base.identifier(test.rpartition("::")[2].removeprefix("test_"))


def _tests(tree: ast.Module | None) -> dict[str, str]:
    """Groups of the tests that take the fixture, by name; tests of a class are prefixed with its name."""
    body = tree.body if tree else []
    groups = {each.name: _group(each) for each in _functions(body) if _takes_fixture(each)}
    for node in _statements(body):
        if isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            of_class = _group(node)
            tests = [each for each in _functions(node.body) if _takes_fixture(each)]
            groups |= {f"{node.name}::{each.name}": _group(each) or of_class for each in tests}
    return groups


def _group(node: ast.FunctionDef | ast.ClassDef) -> str:
    """The group set by a marker of pytest-benchmark; empty if there is none."""
    calls = [decorator for decorator in node.decorator_list if isinstance(decorator, ast.Call)]
    for call in calls:
        if ast.unparse(call.func).endswith("mark.benchmark"):
            return next((ast.unparse(keyword.value) for keyword in call.keywords if keyword.arg == "group"), "")
    return ""


def _statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements at that level, also inside if and try."""
    for node in body:
        yield node
        if isinstance(node, ast.If | ast.Try):
            yield from _statements([*node.body, *node.orelse])


def _functions(body: Sequence[ast.stmt]) -> list[ast.FunctionDef]:
    return [node for node in _statements(body) if isinstance(node, ast.FunctionDef)]


def _takes_fixture(node: ast.FunctionDef) -> bool:
    if not node.name.startswith("test"):
        return False
    return any(arg.arg in FIXTURES for arg in (*node.args.args, *node.args.kwonlyargs))


def _project(file: Path, tree: ast.Module | None, tests: Sequence[str]) -> dict[str, str]:
    """Texts of a test's file, which comes first, and of everything that pytest needs to run it: nothing else if its
    tests need only the fixture and it imports nothing of its project.
    """
    text = base.read_text(file)
    root = _root(file)
    if root is None or _stands_alone(tree, tests, root):
        return {PROBLEM: text}
    files, size = {str(file.resolve().relative_to(root)): text}, len(text)
    for each in _sources(root):
        size += each.stat().st_size
        if len(files) >= _MAX_FILES or size > _MAX_BYTES:
            raise BenchmarkError("TOO_LARGE", f"{root.name}, the project of {file.name}, is too large.", AS_IT_STANDS)
        files.setdefault(str(each.relative_to(root)), each.read_text("utf-8", errors="replace"))
    return files


def _root(file: Path) -> Path | None:
    """The top folder of a file's project; otherwise the one above its package; None outside of both."""
    folder = file.resolve().parent
    for parent in (folder, *folder.parents):
        if any((parent / name).exists() for name in _ROOTS):
            return parent
    while (folder / "__init__.py").is_file():
        folder = folder.parent
    return folder if folder != file.resolve().parent or (folder / "conftest.py").is_file() else None


def _stands_alone(tree: ast.Module | None, tests: Sequence[str], root: Path) -> bool:
    """Return True if no test needs pytest, and no import leads into the project."""
    roots = [root / folder for folder in SOURCES]
    own = {each.stem for folder in roots if folder.is_dir() for each in folder.iterdir()}
    for node in ast.walk(tree) if tree else ():
        if isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").partition(".")[0] in own):
            return False
        if isinstance(node, ast.Import) and any(alias.name.partition(".")[0] in own for alias in node.names):
            return False
        if isinstance(node, ast.FunctionDef) and node.name in tests and len(node.args.args) > 1:
            return False
    return not any("::" in name for name in tests)


def _sources(root: Path) -> Iterator[Path]:
    """Python files and settings of a project, without hidden folders and environments."""
    for each in sorted(root.iterdir()):
        if each.name.startswith(".") or (each / "pyvenv.cfg").is_file() or each.is_symlink():
            continue
        if each.is_dir():
            yield from _sources(each)
        elif each.suffix == ".py" or each.name in _SETTINGS:
            yield each
