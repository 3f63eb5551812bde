"""Copy what a file uses next to it: modules that it imports, what these import, and sources that it names."""

from __future__ import annotations

import ast
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

MAX_FILES = 200
SOURCES = {".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".inl"}  # of an extension that it builds


def copy(path: Path, folder: Path) -> None:
    """Copy modules and packages next to the path into the folder, if its text imports them, and sources next to it if
    its text or that of a copied one names them.
    """
    _copy_sources(path, folder)
    waiting, seen = [path], {path.stem}
    while waiting and len(seen) < MAX_FILES:
        for name in _imports(waiting.pop()):
            module, package = path.with_name(f"{name}.py"), path.with_name(name)
            if name in seen:
                continue
            seen.add(name)
            if module.is_file():
                shutil.copy2(module, folder / module.name)
                waiting.append(module)
            elif (package / "__init__.py").is_file():
                ignored = shutil.ignore_patterns("__pycache__", ".*")
                shutil.copytree(package, folder / name, ignore=ignored, dirs_exist_ok=True)


def _copy_sources(path: Path, folder: Path) -> None:
    near = [
        each for each in path.parent.iterdir() if each.suffix in SOURCES and each.is_file() and not each.is_symlink()
    ]
    texts = [path]
    while texts and near:
        text = texts.pop().read_text("utf-8", "replace")
        named = [each for each in near if re.search(rf"(?<![\w.-]){re.escape(each.name)}\b", text)]
        for each in named:
            shutil.copy2(each, folder / each.name)
            near.remove(each)
        texts += named


def _imports(file: Path) -> Iterator[str]:
    """First parts of the names that the file imports; none for a file that cannot be parsed."""
    try:
        tree = ast.parse(file.read_text("utf-8"))
    except (OSError, ValueError, SyntaxError, RecursionError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]
