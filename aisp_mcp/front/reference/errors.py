"""The page of error codes, read from the source: every place that raises an AispError with a literal code."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import aisp_mcp
from aisp_mcp import errors

CLASSES = {
    name: item for name, item in vars(errors).items() if isinstance(item, type) and issubclass(item, errors.AispError)
}


class Code(NamedTuple):
    """One code at one place. message: its words, with … for what is filled in."""

    code: str
    kind: str
    module: str
    message: str


def errors_page() -> str:
    """docs/errors.md without its marker."""
    tree = (errors.__doc__ or "").strip().splitlines()
    lines = ["# Errors", "", "```", *[line for line in tree if line[:1] in ("A", "├", "│", "└")], "```", ""]
    lines += [
        "Every error has a stable code, one sentence, a hint, and next steps that work on this machine.",
        "An exception that is none of these is a bug: its code is `INTERNAL`, with a number to find it in the log.",
        "",
        "| code | kind | exit code | says | raised in |",
        "| --- | --- | --- | --- | --- |",
    ]
    by_code: dict[str, list[Code]] = {}
    for found in codes():
        by_code.setdefault(found.code, []).append(found)
    for code, places in sorted(by_code.items()):
        kinds = ", ".join(dict.fromkeys(place.kind for place in places))
        modules = ", ".join(dict.fromkeys(f"`{place.module}`" for place in places))
        message = places[0].message.replace("|", "\\|")
        lines.append(f"| `{code}` | {kinds} | {CLASSES[places[0].kind].exit_code} | {message} | {modules} |")
    return "\n".join(lines) + "\n"


def codes() -> list[Code]:
    """Every literal code in the package, in the order of files and lines."""
    root = Path(aisp_mcp.__file__).parent
    return [
        found
        for path in sorted(root.rglob("*.py"))
        if "_suites" not in path.parts
        for found in _codes(ast.parse(path.read_text(encoding="utf-8")), ".".join(path.relative_to(root).parts)[:-3])
    ]


def _codes(tree: ast.AST, module: str) -> Iterator[Code]:
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CLASSES):
            continue
        first = node.args[0] if node.args else None
        if isinstance(first, ast.Constant) and isinstance(first.value, str):
            message = _words(node.args[1]) if len(node.args) > 1 else ""
            yield Code(first.value, node.func.id, module.removesuffix(".__init__"), message)


def _words(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
    if isinstance(node, ast.BinOp):
        return _words(node.left) + _words(node.right)
    return "…"
