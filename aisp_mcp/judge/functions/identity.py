"""Names of targets by their content: measurements belong together if the baseline's code and its inputs are equal."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator, Sequence

DIGITS = 6  # of a digest in a name
GOAL = "speed"  # the only one that functions are judged for


def of_baseline(text: str, name: str) -> str:
    """Digest of a function and of what it uses in its file, without comments, docstrings and layout."""
    parts = _definitions(ast.parse(text))
    waiting, found = [name], dict[str, list[str]]()
    while waiting:
        name = waiting.pop()
        if name in found or name not in parts:
            continue
        nodes = parts[name]
        found[name] = [ast.unparse(_without_docstrings(node)) for node in nodes]
        waiting += [used.id for node in nodes for used in ast.walk(node) if isinstance(used, ast.Name)]
    return _digest([f"{name} {part}" for name in sorted(found) for part in found[name]])


def of_target(title: str, baseline: str, inputs: str, name: str = "") -> str:
    """The name of the target with its digest: slow:nearest@3f2a9c. baseline: its digest.

    A name that a person gives takes the place of the inputs and of the title: it joins measurements at other inputs,
    and keeps those with other names apart.
    """
    form = name if name else ast.unparse(ast.parse(f"_({inputs})"))
    return f"{name or title}@{_digest([baseline, 'name' if name else 'inputs', form, GOAL])[:DIGITS]}"


def _definitions(tree: ast.Module) -> dict[str, list[ast.stmt]]:
    """Statements at the top level of a file by the names that they define, those in its blocks included."""
    found = dict[str, list[ast.stmt]]()
    for node in tree.body:
        for name in _defined(node):
            found.setdefault(name, []).append(node)
    return found


def _defined(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
        return
    for part in ast.walk(node):
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
            yield part.id
        elif isinstance(part, ast.FunctionDef | ast.ClassDef):
            yield part.name
        elif isinstance(part, ast.alias):
            yield (part.asname or part.name).partition(".")[0]


def _without_docstrings(node: ast.stmt) -> ast.stmt:
    for part in ast.walk(node):
        if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            first = part.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and len(part.body) > 1:
                part.body = part.body[1:]
    return node


def _digest(parts: Sequence[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
