"""The page of error codes, collected from the source: every AispError raised with a literal code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import aisp_mcp
from aisp_mcp import errors

CLASSES = {
    name: item for name, item in vars(errors).items() if isinstance(item, type) and issubclass(item, errors.AispError)
}


class Code(NamedTuple):
    """A code raised in a module. message: its text, with … for filled-in values."""

    code: str
    kind: str
    module: str
    message: str


def errors_page() -> str:
    """Return docs/errors.md without its marker."""
    tree = (errors.__doc__ or "").strip().splitlines()
    lines = ["# Errors", "", "```", *[line for line in tree if line[:1] in ("A", "├", "│", "└")], "```", ""]
    lines += [
        "Every error has a stable code, one sentence, a hint, and next steps that work on this machine.",
        "Any other exception is a bug: its code is `INTERNAL`, with a number to find it in the log.",
        "",
        "| code | kind | exit code | message | raised in |",
        "| --- | --- | --- | --- | --- |",
    ]
    by_code: dict[str, list[Code]] = {}
    for entry in codes():
        by_code.setdefault(entry.code, []).append(entry)
    for code, entries in sorted(by_code.items()):
        kinds = ", ".join(dict.fromkeys(entry.kind for entry in entries))
        modules = ", ".join(dict.fromkeys(f"`{entry.module}`" for entry in entries))
        message = entries[0].message.replace("|", "\\|").replace("\n", " ")
        exit_code = 5 if code in errors.CANNOT_DECIDE else CLASSES[entries[0].kind].exit_code
        lines.append(f"| `{code}` | {kinds} | {exit_code} | {message} | {modules} |")
    return "\n".join(lines) + "\n"


def codes() -> list[Code]:
    """Return every literal code in the package, in the order of files and lines."""
    root = Path(aisp_mcp.__file__).parent
    raised = re.compile(rf"\b(?:{'|'.join(CLASSES)})\(")
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(root.rglob("*.py"))}
    return [
        code
        for path, text in texts.items()
        if "_suites" not in path.parts and raised.search(text)  # parsing takes longer
        for code in _codes(ast.parse(text), ".".join(path.relative_to(root).parts)[:-3])
    ]


def _codes(tree: ast.AST, module: str) -> Iterator[Code]:
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CLASSES):
            continue
        first = node.args[0] if node.args else None
        if isinstance(first, ast.Constant) and isinstance(first.value, str):
            message = _message(node.args[1]) if len(node.args) > 1 else ""
            yield Code(first.value, node.func.id, module.removesuffix(".__init__"), message)


def _message(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
    if isinstance(node, ast.BinOp):
        return _message(node.left) + _message(node.right)
    return "…"
