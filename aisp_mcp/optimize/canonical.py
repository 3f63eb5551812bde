"""A canonical form of the code of a module: equal for modules that differ only in names, comments and dead code."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable, Iterator, Mapping, Sequence

from aisp_mcp.judge import source_facts

KEPT_NAMES = (*sorted(source_facts.ENTRIES), "prepare", "REQUIRES")  # names that the judge looks up
ENDS = (ast.Return, ast.Raise, ast.Continue, ast.Break)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Assign


def canonical(text: str) -> str:
    """The form. Raises SyntaxError, ValueError, RecursionError, MemoryError for text that is not a module."""
    tree = ast.parse(text)
    tree = _Plain(tree).visit(tree)
    fixed = _fixed_names(tree)
    definitions, effects = _parts(tree.body)
    for node in (*definitions.values(), *effects):
        if isinstance(node, FUNCTIONS):
            _Renamed(_locals(node, fixed | definitions.keys())).visit(node)
    order = list(_reached(definitions, effects))
    names = {name: f"helper{number}" for number, name in enumerate(order) if name not in KEPT_NAMES}
    names = {name: new for name, new in names.items() if name not in fixed}
    shown = [*(definitions[name] for name in order), *effects]
    return "\n".join(ast.dump(_Renamed(names).visit(node)) for node in shown)


class _Plain(ast.NodeTransformer):
    """Replaces names bound by imports with the imported names, and drops statements without effect."""

    def __init__(self, tree: ast.Module) -> None:
        self.names: dict[str, str] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                self.names |= {name.asname: name.name for name in node.names if name.asname}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                self.names |= {name.asname or name.name: f"{node.module}.{name.name}" for name in node.names}

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(self.names.get(node.id, node.id), ast.Load())

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        value = self.visit(node.value)
        if isinstance(value, ast.Name):
            return ast.Name(f"{value.id}.{node.attr}", ast.Load())
        return ast.Attribute(value, node.attr, ast.Load())

    def visit_arg(self, node: ast.arg) -> ast.arg:
        return ast.arg(node.arg)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt | None:
        if node.value is None:
            return None
        return ast.Assign([self.visit(node.target)], self.visit(node.value), lineno=node.lineno)

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:
        """Drop imports: the used names contain the same information."""

    visit_ImportFrom = visit_Import  # noqa: N815

    def visit_Pass(self, node: ast.Pass) -> None:
        """Drop a statement without effect."""

    def visit_Expr(self, node: ast.Expr) -> ast.stmt | None:
        return None if isinstance(node.value, ast.Constant | ast.Name) else self.generic_visit(node)  # type: ignore[return-value]

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        if isinstance(node.test, ast.Constant):
            return [
                visited
                for statement in (node.body if node.test.value else node.orelse)
                for visited in _flat(self.visit(statement))
            ]
        return self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        self.generic_visit(node)
        unused = _unused(node)
        node.body = [statement for statement in _before_end(node.body) if not _assigns_only(statement, unused)]
        return node


def _flat(visited: ast.AST | list[ast.stmt] | None) -> list[ast.stmt]:
    if visited is None:
        return []
    return visited if isinstance(visited, list) else [visited]  # type: ignore[list-item]


def _before_end(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """The statements up to one after which nothing runs."""
    for number, node in enumerate(body, 1):
        if isinstance(node, ENDS):
            return list(body[:number])
    return list(body)


def _unused(function: ast.FunctionDef) -> set[str]:
    """Names that statements of the body assign and that occur nowhere else."""
    assigned = [name for node in function.body for name in _assigned(node)]
    names = [node.id for node in ast.walk(function) if isinstance(node, ast.Name)]
    return {name for name in assigned if names.count(name) == 1 and assigned.count(name) == 1}


def _assigned(node: ast.stmt) -> list[str]:
    """The name that a simple assignment binds."""
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
        return [node.targets[0].id]
    return []


def _assigns_only(node: ast.stmt, unused: set[str]) -> bool:
    """Return True for an assignment of a cheap value to an unused name."""
    return isinstance(node, ast.Assign) and bool(set(_assigned(node)) & unused) and _is_plain(node.value)


def _is_plain(value: ast.expr) -> bool:
    """Return True for constants and names, and collections and arithmetic of constants: no call, no work on tensors."""
    nodes = list(ast.walk(value))
    plain = (ast.Constant, ast.Tuple, ast.List, ast.Dict, ast.Set, ast.expr_context)
    arithmetic = (ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop)
    return isinstance(value, ast.Name) or all(isinstance(node, (*plain, *arithmetic)) for node in nodes)


def _fixed_names(tree: ast.Module) -> set[str]:
    """Names that must stay: of keyword arguments, in texts, and names shared with other scopes."""
    names = set(dir(builtins))
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg:
            names.add(node.arg)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names.add(node.value)
        elif isinstance(node, ast.Global | ast.Nonlocal):
            names |= set(node.names)
    return names


def _parts(body: Iterable[ast.stmt]) -> tuple[dict[str, Definition], list[ast.stmt]]:
    """(definitions by name, statements with an effect when the module is loaded). Names bound twice have one."""
    body = list(body)
    names = [name for node in body for name in _defined(node)]
    definitions: dict[str, Definition] = {}
    effects = list[ast.stmt]()
    for node in body:
        name = next(iter(_defined(node)), None)
        plain = isinstance(node, FUNCTIONS) or (isinstance(node, ast.Assign) and _is_plain(node.value))
        if name is not None and names.count(name) == 1 and plain:
            definitions[name] = node  # type: ignore[assignment]
        else:
            effects.append(node)
    return definitions, effects


def _defined(node: ast.stmt) -> list[str]:
    if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
        return [node.name]
    return _assigned(node)


def _reached(definitions: Mapping[str, Definition], effects: Sequence[ast.stmt]) -> Iterator[str]:
    """Definitions in the order in which the judge's names, and then the statements, refer to them."""
    seen = dict[str, None]()
    todo = [name for name in reversed(KEPT_NAMES) if name in definitions]
    roots = [name for node in effects for name in _used(node) if name in definitions]
    todo = [*reversed(roots), *todo]
    while todo:
        name = todo.pop()
        if name not in seen:
            seen[name] = None
            todo += [used for used in reversed(list(_used(definitions[name]))) if used in definitions]
    return iter(seen)


def _used(node: ast.AST) -> Iterator[str]:
    """First parts of the names that it uses, in the order of the text."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Name):
            yield child.id.partition(".")[0]
        yield from _used(child)


def _locals(function: ast.AST, shared: Iterable[str]) -> dict[str, str]:
    """New names for everything that a function binds and no other scope knows, in the order of the text."""
    bound = dict[str, None]()
    for node in ast.walk(function):
        if isinstance(node, ast.arg):
            bound[node.arg] = None
        elif node is not function and (name := _name_of(node)):
            bound[name] = None
    bound |= dict.fromkeys(_stored(function))
    order = [name for name in _order(function) if name in bound and name not in set(shared)]
    return {name: f"local{number}" for number, name in enumerate(dict.fromkeys(order))}


def _name_of(node: ast.AST) -> str:
    """The name that a function or an exception handler binds; empty for any other node."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ExceptHandler):
        return node.name or ""
    return ""


def _stored(function: ast.AST) -> Iterator[str]:
    """Names bound by a statement or a comprehension."""
    for node in ast.walk(function):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AugAssign | ast.For | ast.comprehension | ast.NamedExpr):
            targets = [node.target]
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            targets = [node.optional_vars]
        for target in targets:
            yield from (name.id for name in _names_of(target) if "." not in name.id)


def _names_of(target: ast.expr) -> Iterator[ast.Name]:
    """The names that an assignment to this target binds; not those inside an index."""
    if isinstance(target, ast.Name):
        yield target
    elif isinstance(target, ast.Tuple | ast.List):
        for part in target.elts:
            yield from _names_of(part)
    elif isinstance(target, ast.Starred):
        yield from _names_of(target.value)


def _order(node: ast.AST) -> Iterator[str]:
    """Names in the order of the tree."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Name):
            yield child.id.partition(".")[0]
        elif isinstance(child, ast.arg):
            yield child.arg
        elif name := _name_of(child):
            yield name
        yield from _order(child)


class _Renamed(ast.NodeTransformer):
    """Renames variables everywhere below a node."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.Name:
        first, dot, rest = node.id.partition(".")
        return ast.Name(self.names.get(first, first) + dot + rest, ast.Load())

    def visit_arg(self, node: ast.arg) -> ast.arg:
        return ast.arg(self.names.get(node.arg, node.arg))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.name = self.names.get(node.name, node.name)
        return self.generic_visit(node)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.AST:
        node.name = self.names.get(node.name, node.name) if node.name else None
        return self.generic_visit(node)
