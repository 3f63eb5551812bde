"""The tree keeps its two ideas: a feature is a folder, and a folder is on one side of the trust boundary."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import aisp_mcp
from aisp_mcp import judge

PACKAGE = Path(aisp_mcp.__file__).parent
JUDGE = "aisp_mcp.judge."
# The folders that run in parallel across the trust boundary, and what each may know of the judge.
CHILDREN = {"candidate": {"candidate", "protocol", "native"}}


@cache
def imports(path: Path) -> list[tuple[str, str]]:
    """(module, imported name) of every import of this package in a file, wherever it stands."""
    return list(_imports(ast.parse(path.read_text("utf-8"))))


def _imports(parent: ast.AST) -> Iterator[tuple[str, str]]:
    for node in ast.iter_child_nodes(parent):
        if isinstance(node, (ast.stmt, ast.excepthandler, ast.match_case)):  # no expression has an import
            yield from _imports(node)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("aisp_mcp"):
            yield from ((node.module or "", alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names if alias.name.startswith("aisp_mcp"))


def part(module: str, name: str) -> str | None:
    """The module directly inside judge/ that an import reaches."""
    dotted = f"{module}.{name}." if name else f"{module}."
    return dotted.removeprefix(JUDGE).partition(".")[0] if dotted.startswith(JUDGE) else None


def test_other_features_import_public_modules_of_the_judge_alone() -> None:
    reached = {
        (path.relative_to(PACKAGE).as_posix(), imported)
        for path in PACKAGE.rglob("*.py")
        if path.relative_to(PACKAGE).parts[0] != "judge"
        for imported in [part(*names) for names in imports(path)]
        if imported is not None and imported not in judge.__all__
    }
    assert reached == set()


def test_the_public_modules_exist() -> None:
    folder = PACKAGE / "judge"
    names = {path.stem for path in folder.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
    assert set(judge.__all__) - {"compare"} <= names
    assert callable(judge.compare)


def test_a_candidate_knows_the_protocol_and_nothing_else_of_the_judge() -> None:
    for child, allowed in CHILDREN.items():
        paths = list((PACKAGE / "judge" / child).rglob("*.py"))
        assert paths
        for path in paths:
            assert {imported for names in imports(path) if (imported := part(*names))} <= allowed, path.name


def test_private_names_stay_in_their_module() -> None:
    taken = {
        (path.relative_to(PACKAGE).as_posix(), module, name)
        for path in PACKAGE.rglob("*.py")
        for module, name in imports(path)
        if name.startswith("_") and not name.startswith("__")
    }
    assert taken == set()


def test_a_feature_says_what_it_does_and_where_to_begin() -> None:
    for path in PACKAGE.rglob("__init__.py"):
        words = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
        assert words, path
        for named in {word.strip("`.,") for word in words.split() if word.strip("`.,").endswith(".py")}:
            assert (path.parent / named).is_file(), (path, named)
