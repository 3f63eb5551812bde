"""The repository's rules that no other tool checks. Run: python tools/budgets.py

    rule     measured in
    init     statements of an `__init__.py` other than its docstring, imports, __all__, versions and __getattr__
    sleep    calls that sleep in test_*.py and conftest.py
    cycles   import cycles between modules, also for types

A helper that polls for a condition, or a stand-in that pretends to work, may sleep: it lives in a module of its own.
Files and functions are as long as their subject. Complexity is a warning: `make check` prints the ten worst functions.
"""

from __future__ import annotations

import argparse
import ast
import graphlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "aisp_mcp"
FOLDERS = (PACKAGE, "benchmarks", "examples", "labs", "tests", "tools", "validation")
SLEEPS = {("time", "sleep"), ("asyncio", "sleep"), ("anyio", "sleep"), ("trio", "sleep")}


class Finding(NamedTuple):
    """One place that breaks a rule."""

    rule: str
    path: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule}: {self.message}"


def measure(root: Path) -> Iterator[Finding]:
    """Everything that the tree breaks."""
    for folder in FOLDERS:
        for file in sorted((root / folder).rglob("*.py")):
            yield from measure_file(file.relative_to(root).as_posix(), file.read_text(encoding="utf-8"))
    if (root / PACKAGE).is_dir():
        yield from measure_cycles(root)


def measure_file(path: str, source: str) -> Iterator[Finding]:
    """Everything that one file breaks."""
    name = Path(path).name
    if name == "__init__.py":
        yield from _init_logic(path, ast.parse(source, path))
    if path.startswith("tests/") and name.startswith(("test_", "conftest")):
        yield from _sleeps(path, ast.parse(source, path))


def _init_logic(path: str, tree: ast.Module) -> Iterator[Finding]:
    for node in tree.body:
        is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        is_dunder = isinstance(node, ast.Assign) and all(
            isinstance(target, ast.Name) and target.id in ("__all__", "__version__") for target in node.targets
        )
        is_lazy_name = isinstance(node, ast.FunctionDef) and node.name == "__getattr__"
        if not (is_docstring or is_dunder or is_lazy_name or isinstance(node, ast.Import | ast.ImportFrom)):
            yield Finding("init", path, node.lineno, "an __init__.py contains no logic")


def _sleeps(path: str, tree: ast.Module) -> Iterator[Finding]:
    imported = {
        (node.module, alias.name): alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    local_names = {name for origin, name in imported.items() if origin in SLEEPS}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        by_module = (
            isinstance(function, ast.Attribute)
            and isinstance(function.value, ast.Name)
            and (function.value.id, function.attr) in SLEEPS
        )
        by_name = isinstance(function, ast.Name) and function.id in local_names
        if by_module or by_name:
            yield Finding("sleep", path, node.lineno, "a test does not sleep")


def measure_cycles(root: Path) -> Iterator[Finding]:
    """One finding if modules import each other in a circle; imports for type checking alone count as well."""
    import grimp

    sys.path.insert(0, str(root))
    graph = grimp.build_graph(PACKAGE, exclude_type_checking_imports=False, cache_dir=None)
    order = graphlib.TopologicalSorter({m: graph.find_modules_directly_imported_by(m) for m in graph.modules})
    try:
        order.prepare()
    except graphlib.CycleError as error:
        yield Finding("cycles", PACKAGE, 1, " > ".join(error.args[1]))


def main() -> int:
    """Print what breaks a rule; 1 if anything does."""
    parser = argparse.ArgumentParser(description="Check the repository's rules.")
    parser.add_argument("--root", type=Path, default=ROOT, help="the tree to measure")
    findings = list(measure(parser.parse_args().root.resolve()))
    for finding in findings:
        print(finding)
    print(f"budgets: {len(findings)} problems")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
