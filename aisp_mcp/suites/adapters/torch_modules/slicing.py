"""The part of a Python file that some of its names need, so that a reference can run without the candidate that was
written into the same file.
"""

from __future__ import annotations

import ast
from collections.abc import Collection


def needed_by(tree: ast.Module, names: Collection[str]) -> tuple[str, frozenset[str]]:
    """Source of the statements that bind these names or, through others, the names they use; and all names reached.

    Statements that bind nothing, such as calls and settings of a library, are left out; future and star imports stay.
    """
    binds = {statement: _bound(statement) for statement in tree.body}
    reached, statements = set(names), set[ast.stmt]()
    grown = True
    while grown:
        grown = False
        for statement, bound in binds.items():
            if statement not in statements and (bound & reached or _always(statement)):
                statements.add(statement)
                reached |= _used(statement)
                grown = True
    body = [statement for statement in tree.body if statement in statements]
    return ast.unparse(ast.Module(body, [])) + "\n", frozenset(reached)


def _always(statement: ast.stmt) -> bool:
    if not isinstance(statement, ast.ImportFrom):
        return False
    return statement.module == "__future__" or any(alias.name == "*" for alias in statement.names)


def _bound(statement: ast.stmt) -> set[str]:
    """Names that the statement gives a value at the top level, also inside if, try and with."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {statement.name}
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return {alias.asname or alias.name.partition(".")[0] for alias in statement.names}
    bound = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    for field in ("body", "orelse", "finalbody", "handlers"):
        for inner in getattr(statement, field, None) or ():
            bound |= _bound(inner)
    return bound


def _used(statement: ast.stmt) -> set[str]:
    return {node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
