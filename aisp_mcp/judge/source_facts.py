"""Facts read from the text of a benchmark's file: summary, goal, needs, problem. Nothing is imported or run."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path

from aisp_mcp import bench
from aisp_mcp.bench import Needs
from aisp_mcp.judge.native import launch_header

SUMMARY_CHARS = 160
ENTRIES = {"run", "serve"}  # functions of a candidate; serve is an engine's
LIBRARY = ("benchmark", "decoder", "training")  # modules of this package whose classes specifications inherit from
ROOT = "Benchmark"
DISTRIBUTED, RANKS = "DistributedBenchmark", 2  # a benchmark of several processes, and its default number of them


@dataclass(frozen=True)
class Facts:
    """Facts from the text of one file."""

    summary: str = ""
    goal: str = "speed"
    needs: dict[str, int | float | str] = field(default_factory=dict)
    problem: str | None = None


def read(source: bytes, suffix: str, baseline: bool) -> Facts:
    """Facts of a specification (baseline) or a candidate; an invalid file has a problem instead."""
    if suffix in launch_header.LANGUAGES:
        return _native(source.decode("utf-8", "replace"), suffix)
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        where = f" in line {error.lineno}" if error.lineno else ""
        return Facts(problem=f"syntax error{where}: {plain(error.msg or 'invalid')}")
    except (ValueError, RecursionError, MemoryError) as error:
        return Facts(problem=f"cannot be parsed: {plain(str(error)) or type(error).__name__}")
    summary = plain((ast.get_docstring(tree) or "").strip().partition("\n")[0])
    return _specification(tree, summary) if baseline else _candidate(tree, summary)


def _native(source: str, suffix: str) -> Facts:
    """A candidate to be compiled: its summary and launch header."""
    problem, words = None, plain(launch_header.summary(source))
    try:
        launch_header.read(source, suffix)
    except launch_header.HeaderError as error:
        problem = plain(str(error))
    return Facts(
        words, needs={"compiler": "nvcc", "gpus": 1} if suffix == ".cu" else {"compiler": "g++"}, problem=problem
    )


def _candidate(tree: ast.Module, summary: str) -> Facts:
    names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    names |= {t.id for n in tree.body if isinstance(n, ast.Assign) for t in n.targets if isinstance(t, ast.Name)}
    names |= {a.asname or a.name for n in tree.body if isinstance(n, ast.ImportFrom | ast.Import) for a in n.names}
    problem = None if names & ENTRIES or _has_blocks(tree) else "defines no function 'run'"
    return Facts(summary, needs=_needs(_attribute(tree, "needs")), problem=problem)


def _has_blocks(tree: ast.Module) -> bool:
    """Return True if names may also come from a conditional, a loop or a star import: then only loading the file can
    tell.
    """
    star = any(isinstance(n, ast.ImportFrom) and n.names[0].name == "*" for n in tree.body)
    return star or any(isinstance(n, ast.If | ast.Try | ast.With | ast.For | ast.While) for n in tree.body)


def _specification(tree: ast.Module, summary: str) -> Facts:
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    lines = [_line(node, {**_imported(tree), **classes}) for node in classes.values()]
    complete = [line for line in lines if line[-1].name == ROOT]
    line = next(iter(complete or [line for line in lines if line[0].bases]), None)
    if line is None:
        if _has_blocks(tree):
            return Facts(summary)
        return Facts(summary, problem="defines no subclass of Benchmark")
    goal, needs = _inherited(line, "goal"), _needs(_inherited(line, "needs"))
    literal = goal.value if isinstance(goal, ast.Constant) and isinstance(goal.value, str) else "speed"
    if any(getattr(_inherited(line, name), "value", None) is not None for name in ("make", "check", "rtol", "atol")):
        needs = {"device": "cpu", **needs}
    if any(DISTRIBUTED in (node.name, *map(_last_name, node.bases)) for node in line):
        ranks = _inherited(line, "ranks")
        given = ranks.value if isinstance(ranks, ast.Constant) and isinstance(ranks.value, int) else RANKS
        needs = {"ranks": given, **needs}
    return Facts(summary, plain(literal), needs)


def _line(node: ast.ClassDef, known: dict[str, ast.ClassDef]) -> list[ast.ClassDef]:
    """A class and its known ancestors, nearest first; the line to Benchmark if there is one."""
    others = {name: definition for name, definition in known.items() if definition is not node}
    bases = [others[name] for name in map(_last_name, node.bases) if name in others]
    lines = [[node, *_line(base, others)] for base in bases] or [[node]]
    return next((line for line in lines if line[-1].name == ROOT), lines[0])


def _inherited(line: list[ast.ClassDef], name: str) -> ast.expr | None:
    """The expression that the nearest class of a line assigns to a name."""
    return next((value for node in line if (value := _attribute(node, name)) is not None), None)


def _imported(tree: ast.Module) -> dict[str, ast.ClassDef]:
    """Classes of the library under the names that a file gives them."""
    classes = dict(_library())
    for node in tree.body:
        for alias in node.names if isinstance(node, ast.ImportFrom) else ():
            if alias.asname and alias.name in _library():
                classes[alias.asname] = _library()[alias.name]
    return classes


@cache
def _library() -> dict[str, ast.ClassDef]:
    """All classes of the modules that a specification may inherit from, by name; parsed like all other files."""
    folder = Path(bench.__file__).parent
    trees = [ast.parse((folder / f"{name}.py").read_bytes()) for name in LIBRARY]
    return {node.name: node for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)}


def _attribute(node: ast.ClassDef | ast.Module, name: str) -> ast.expr | None:
    """The expression assigned to a name of a class or module, the last one if there are several."""
    value = None
    for item in node.body:
        if isinstance(item, ast.Assign):
            targets: list[ast.expr] = item.targets
        else:
            targets = [item.target] if isinstance(item, ast.AnnAssign) else []
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            value = item.value if isinstance(item, ast.Assign | ast.AnnAssign) else None
    return value


def _last_name(node: ast.expr) -> str:
    """`Benchmark` of both `Benchmark` and `bench.Benchmark`."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _needs(node: ast.expr | None) -> dict[str, int | float | str]:
    """`Needs(gpus=1, packages=("x",))` as data; the loader handles everything that is not literal."""
    needs: dict[str, int | float | str] = {}
    if not isinstance(node, ast.Call):
        return needs
    named = list(zip([need.name for need in fields(Needs)], node.args, strict=False))
    for name, expression in named + [(k.arg or "", k.value) for k in node.keywords]:
        try:
            value = ast.literal_eval(expression)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            continue
        if name in ("packages", "cpu", "gpu", "tools") and isinstance(value, tuple | list):
            needs[name] = plain(", ".join(map(str, value)))
        elif name in Needs.__dataclass_fields__ and (isinstance(value, int | float) or value == "cpu"):
            needs[name] = value
    return needs


def plain(text: str) -> str:
    """One line without control characters, suitable for a terminal or a table."""
    if not text.isprintable():
        text = "".join(char if char.isprintable() else " " for char in text)
    clean = " ".join(text.split())
    return clean if len(clean) <= SUMMARY_CHARS else clean[: SUMMARY_CHARS - 3] + "..."
