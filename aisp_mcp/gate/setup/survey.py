"""Survey of a repository's measurable parts, from its files alone."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from aisp_mcp.gate.setup.records import Kind

FIXTURES = ("benchmark", "aisp_bench")
MOST = 12  # benchmarks of a first suite
PROGRAM = re.compile(r"bench|perf(?!ect)|speed", re.IGNORECASE)
NOT_SOURCES = {"tests", "test", "docs", "doc", "benchmarks", "benchmark", "bench", "examples", "scripts", "tools"}
SOURCES = ("src", "lib", "python", "")  # folders that contain packages


@dataclass(frozen=True)
class Survey:
    """names: of benchmarks of asv, or files of tests or programs. folder: of asv's suite. package: the one
    to import.
    """

    kind: Kind
    names: Sequence[str] = ()
    folder: str = ""
    package: str = ""
    programs: list[list[str]] = field(default_factory=list)


def survey(repo: Path, files: Sequence[str]) -> Survey:
    """The best starting point in the repository: aisp pairs, tests with a benchmark fixture, asv's suite, or programs.

    files: paths of its tracked files.
    """
    modules = sorted(file for file in files if file.endswith(".py"))
    package = _package(files)
    pairs = [file for file in modules if re.match(r"(benchmarks|labs)/[^/]+/baseline_\w+\.py$", file)]
    if pairs:
        return Survey("pairs", pairs, package=package)
    if tests := [file for file in modules if benchmark_tests(repo / file)]:
        return Survey("pytest", tests, package=package)
    if (settings := next((file for file in files if Path(file).name.startswith("asv.conf.json")), None)) is not None:
        folder = _asv_folder(repo, settings)
        if names := _spread(list(_asv_names(repo / folder))):
            return Survey("asv", names, folder, package)
    scripts = [file for file in modules if _is_program(repo, file)]
    programs = [[script] for script in scripts[:MOST]]
    return Survey("programs", scripts, "", package, programs + ([["-c", f"import {package}"]] if package else []))


def _tree(path: Path) -> ast.Module:
    try:
        return ast.parse(path.read_text("utf-8"))
    except (OSError, SyntaxError, ValueError, RecursionError):
        return ast.Module([], [])


def benchmark_tests(path: Path) -> set[str]:
    """Names of the tests in a file that use a benchmark fixture."""
    functions = [node for node in ast.walk(_tree(path)) if isinstance(node, ast.FunctionDef)]
    return {
        function.name
        for function in functions
        if function.name.startswith("test") and any(argument.arg in FIXTURES for argument in function.args.args)
    }


def _asv_folder(repo: Path, settings: str) -> str:
    """The folder of asv's benchmarks, relative to the repository."""
    text = re.sub(r"^\s*//.*$", "", (repo / settings).read_text("utf-8"), flags=re.MULTILINE)
    match = re.search(r'"benchmark_dir"\s*:\s*"([^"]+)"', text)
    folder = (repo / settings).parent / (match[1] if match else "benchmarks")
    return folder.resolve().relative_to(repo.resolve()).as_posix()


def _asv_names(folder: Path) -> Iterator[str]:
    """MODULE.CLASS.time_NAME and MODULE.time_NAME of the suite."""
    for path in sorted(folder.rglob("*.py")):
        module = ".".join(path.relative_to(folder).with_suffix("").parts)
        for node in _tree(path).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("time_"):
                yield f"{module}:{node.name}"
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                methods = [statement.name for statement in node.body if isinstance(statement, ast.FunctionDef)]
                yield from (f"{module}:{node.name}.{name}" for name in methods if name.startswith("time_"))


def _spread(names: list[str]) -> list[str]:
    """At most MOST of them, in equal steps over the suite."""
    if len(names) <= MOST:
        return names
    return [names[index * len(names) // MOST] for index in range(MOST)]


def _is_program(repo: Path, file: str) -> bool:
    """Return True for a script whose path suggests benchmarking, and that does its work when it is run."""
    if not PROGRAM.search(file) or Path(file).name.startswith(("test_", "conftest", "setup")):
        return False
    return any(
        isinstance(node, ast.If) and isinstance(node.test, ast.Compare) and "__name__" in ast.unparse(node.test)
        for node in _tree(repo / file).body
    )


def _package(files: Sequence[str]) -> str:
    """The importable package with the most modules, or an empty text."""
    counts: dict[str, int] = {}
    for source in SOURCES:
        prefix = f"{source}/" if source else ""
        for file in files:
            parts = file.removeprefix(prefix).split("/")
            is_module = file.startswith(prefix) and file.endswith(".py") and len(parts) > 1
            if is_module and parts[0] not in NOT_SOURCES and f"{prefix}{parts[0]}/__init__.py" in files:
                counts[parts[0]] = counts.get(parts[0], 0) + 1
    return max(sorted(counts), key=lambda name: counts[name], default="")
