"""The repository's budgets: sizes that keep every file readable in one sitting. Run: python tools/budgets.py

    rule        limit                                   measured in
    file        400 lines (tests 600)                   every line of a Python file; data is free
    function    40 lines (tools.py 25, tests 50)        from `def` to its end, docstring not counted
    fields      12 per class                            annotated class attributes and what __init__ sets on self
    init        docstring, imports, __all__, versions   statements of an `__init__.py` that are anything else
    sleep       0                                       calls that sleep in test_*.py and conftest.py
    cycles      0                                       import cycles between modules, also for types

Complexity is ruff's rule C901. A helper that polls for a condition, or a stand-in that pretends to work, may sleep: it
lives in a module of its own. Exceptions stand in tools/waivers.txt, one per line: rule, subject, value, reason. They
may only shrink: a waiver's value must be exactly what is measured (a glob's value is a ceiling), a waiver nobody needs
is an error, and the list may not be longer than in any earlier commit.
"""

from __future__ import annotations

import argparse
import ast
import fnmatch
import graphlib
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "aisp_mcp"
FOLDERS = (PACKAGE, "benchmarks", "examples", "labs", "tests", "tools", "validation")
WAIVERS = "tools/waivers.txt"

FILE_LINES, TEST_FILE_LINES = 400, 600
FUNCTION_LINES, TOOL_FUNCTION_LINES, OTHER_FUNCTION_LINES = 40, 25, 50
CLASS_FIELDS = 12
SLEEPS = {("time", "sleep"), ("asyncio", "sleep"), ("anyio", "sleep"), ("trio", "sleep")}

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


class Finding(NamedTuple):
    """One measured value above its limit. subject is `path` or `path:Qualified.name`."""

    rule: str
    subject: str
    value: int
    limit: int
    line: int = 1

    def __str__(self) -> str:
        path, _, name = self.subject.partition(":")
        return f"{path}:{self.line}: {self.rule} {name or ''} is {self.value}, the limit is {self.limit}".replace(
            "  ", " "
        )


class Waiver(NamedTuple):
    """An exception that was agreed on."""

    rule: str
    subject: str
    value: int
    reason: str

    @property
    def is_glob(self) -> bool:
        return "*" in self.subject

    def covers(self, finding: Finding) -> bool:
        return self.rule == finding.rule and fnmatch.fnmatchcase(finding.subject, self.subject)


def measure_file(path: str, source: str) -> Iterator[Finding]:
    """Everything one file breaks, before waivers."""
    in_tests = path.startswith("tests/")
    lines = len(source.splitlines())
    if lines > (limit := TEST_FILE_LINES if in_tests else FILE_LINES):
        yield Finding("file", path, lines, limit)
    tree = ast.parse(source, path)
    for name, node in _definitions(tree):
        yield from _measure_definition(f"{path}:{name}", node)
    if Path(path).name == "__init__.py":
        yield from _init_logic(path, tree)
    if in_tests and Path(path).name.startswith(("test_", "conftest")):
        yield from _sleeps(path, tree)


def _definitions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, FunctionNode | ast.ClassDef]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, FunctionNode | ast.ClassDef):
            yield f"{prefix}{node.name}", node
            yield from _definitions(node, f"{prefix}{node.name}.")
        else:
            yield from _definitions(node, prefix)


def _measure_definition(subject: str, node: FunctionNode | ast.ClassDef) -> Iterator[Finding]:
    if isinstance(node, ast.ClassDef):
        if (fields := _count_fields(node)) > CLASS_FIELDS:
            yield Finding("fields", subject, fields, CLASS_FIELDS, node.lineno)
        return
    path = Path(subject.partition(":")[0])
    if path.parts[0] != PACKAGE:
        limit = OTHER_FUNCTION_LINES
    else:
        limit = TOOL_FUNCTION_LINES if path.name == "tools.py" else FUNCTION_LINES
    if (lines := _code_lines(node)) > limit:
        yield Finding("function", subject, lines, limit, node.lineno)


def _code_lines(node: FunctionNode) -> int:
    total = (node.end_lineno or node.lineno) - node.lineno + 1
    first = node.body[0]
    if ast.get_docstring(node, clean=False) is not None:
        total -= (first.end_lineno or first.lineno) - first.lineno + 1
    return total


def _count_fields(node: ast.ClassDef) -> int:
    names: set[str] = set()
    for item in node.body:
        if (
            isinstance(item, ast.AnnAssign)
            and isinstance(item.target, ast.Name)
            and "ClassVar" not in ast.unparse(item.annotation)
        ):
            names.add(item.target.id)
        if isinstance(item, FunctionNode) and item.name == "__init__":
            names |= {
                target.attr
                for target in ast.walk(item)
                if isinstance(target, ast.Attribute) and isinstance(target.ctx, ast.Store)
                if isinstance(target.value, ast.Name) and target.value.id == "self"
            }
    return len(names)


def _init_logic(path: str, tree: ast.Module) -> Iterator[Finding]:
    for node in tree.body:
        is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        is_dunder = isinstance(node, ast.Assign) and all(
            isinstance(target, ast.Name) and target.id in ("__all__", "__version__") for target in node.targets
        )
        if not (is_docstring or is_dunder or isinstance(node, ast.Import | ast.ImportFrom)):
            yield Finding("init", path, 1, 0, node.lineno)


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
            yield Finding("sleep", path, 1, 0, node.lineno)


def measure_cycles(root: Path) -> Iterator[Finding]:
    """One finding if modules import each other in a circle; imports for type checking alone count as well."""
    import grimp

    sys.path.insert(0, str(root))
    graph = grimp.build_graph(PACKAGE, exclude_type_checking_imports=False, cache_dir=None)
    order = graphlib.TopologicalSorter({m: graph.find_modules_directly_imported_by(m) for m in graph.modules})
    try:
        order.prepare()
    except graphlib.CycleError as error:
        yield Finding("cycles", " > ".join(error.args[1]), 1, 0)


def measure(root: Path) -> list[Finding]:
    """Everything the tree breaks, several findings of one rule and subject added up."""
    findings: dict[tuple[str, str], Finding] = {}
    for folder in FOLDERS:
        for file in sorted((root / folder).rglob("*.py")):
            for finding in measure_file(file.relative_to(root).as_posix(), file.read_text(encoding="utf-8")):
                key = (finding.rule, finding.subject)
                earlier = findings.get(key)
                findings[key] = finding if earlier is None else earlier._replace(value=earlier.value + finding.value)
    cycles = measure_cycles(root) if (root / PACKAGE).is_dir() else ()
    return [*findings.values(), *cycles]


def parse_waivers(text: str) -> list[Waiver]:
    """Lines of `rule subject value  reason`; `#` starts a comment line."""
    waivers = []
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            rule, subject, value, reason = line.split(None, 3)
            waivers.append(Waiver(rule, subject, int(value), reason))
    return waivers


def judge(findings: Sequence[Finding], waivers: Sequence[Waiver]) -> Iterator[str]:
    """Problems: findings that nobody waived, and waivers that no longer fit."""
    for finding in findings:
        waiver = next((w for w in waivers if w.covers(finding)), None)
        if waiver is None or finding.value > waiver.value:
            yield str(finding) + (f" (waived up to {waiver.value})" if waiver else "")
    for waiver in waivers:
        covered = [f.value for f in findings if waiver.covers(f)]
        if not covered:
            yield f"{WAIVERS}: nobody needs the waiver `{waiver.rule} {waiver.subject}` any more: remove it"
        elif not waiver.is_glob and max(covered) < waiver.value:
            yield f"{WAIVERS}: `{waiver.rule} {waiver.subject}` shrank to {max(covered)}: lower its {waiver.value}"


def judge_history(root: Path, count: int) -> Iterator[str]:
    """The list against every earlier version in this clone's history (an archive has none, a shallow clone few)."""
    for commit in _git(root, "log", "--format=%h", "--", WAIVERS).split():
        earlier = len(parse_waivers(_git(root, "show", f"{commit}:{WAIVERS}")))
        if count > earlier:
            yield f"{WAIVERS}: {count} waivers, but only {earlier} in commit {commit}: the list may only shrink"
            return


def _git(root: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return done.stdout if done.returncode == 0 else ""


def main() -> int:
    """Print what breaks a budget; 1 if anything does."""
    parser = argparse.ArgumentParser(description="Check the repository's budgets.")
    parser.add_argument("--root", type=Path, default=ROOT, help="the tree to measure")
    root = parser.parse_args().root.resolve()
    file = root / WAIVERS
    waivers = parse_waivers(file.read_text(encoding="utf-8")) if file.exists() else []
    problems = [*judge(measure(root), waivers), *judge_history(root, len(waivers))]
    for problem in problems:
        print(problem)
    print(f"budgets: {len(problems)} problems, {len(waivers)} waivers")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
