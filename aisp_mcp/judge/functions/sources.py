"""Find the two functions: files, modules or texts, read and never imported.

`slow.py`, `slow.py:row_sum`, `package.module:row_sum`, or the text of a file. Without a name, the function is the only
public one, or the only one that both sources define.
"""

from __future__ import annotations

import ast
import importlib.machinery
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from aisp_mcp.errors import BenchmarkError, NotFound, UsageError
from aisp_mcp.judge.native import launch_header

ENTRY = "run"  # preferred if several functions are public
MAX_BYTES = 1 << 20  # of a source file
ARRAYS = {"numpy", "scipy", "numba", "pandas", "polars", "sklearn", "skimage", "cv2", "xarray"}
_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*(:[A-Za-z_]\w*)?")


@dataclass(frozen=True)
class Parameters:
    """Parameters of a function. positional: in order; required: those without a default; open: it takes any name;
    annotations, defaults: as they are written.
    """

    positional: tuple[str, ...]
    keyword: tuple[str, ...] = ()
    required: frozenset[str] = frozenset()
    open: bool = False
    annotations: dict[str, str] = field(default_factory=dict)
    defaults: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Source:
    """A function and the file that defines it.

    path: of the file, None for a text. module: its dotted name if it belongs to a package below `root`. suffix: .py, or
    that of a language that the harness compiles. parameters: None if the name is not a plain function.
    """

    text: str
    suffix: str
    path: Path | None = None
    module: str = ""
    root: Path | None = None
    name: str = ""
    parameters: Parameters | None = None
    public: tuple[str, ...] = field(default=())

    @property
    def title(self) -> str:
        """The name for readers."""
        return self.path.stem if self.path else "text"

    @property
    def library(self) -> Literal["torch", "numpy"] | None:
        """Whose values the file computes with: torch's if it imports torch or is compiled, numpy's if it imports a
        library that takes arrays. None: plain Python.
        """
        if self.suffix != ".py" or "torch" in self._imports:
            return "torch"
        return "numpy" if ARRAYS & self._imports else None

    @property
    def has_loop(self) -> bool:
        """Return True if the file is Python with a loop, or a comprehension."""
        loops = (ast.For, ast.AsyncFor, ast.While, ast.comprehension)
        return self.suffix == ".py" and any(isinstance(node, loops) for node in ast.walk(ast.parse(self.text)))

    @property
    def _imports(self) -> set[str]:
        return {name for node in ast.walk(ast.parse(self.text)) for name in _imported(node)}


def is_function(spec: str) -> bool:
    """Return True if this names a Python file or module, or is a text, and so may be one of the caller's
    own functions.
    """
    if "\n" in spec:
        return True
    return _file(spec)[0] is not None or (_MODULE.fullmatch(spec) is not None and _located(spec) is not None)


def pair(baseline: str, candidate: str) -> tuple[Source, Source]:
    """Both functions. Raises NotFound NO_FUNCTION, UsageError AMBIGUOUS_FUNCTION, BenchmarkError UNREADABLE."""
    both = read(baseline), read(candidate)
    return _chosen(both[0], both[1]), _chosen(both[1], both[0])


def one(spec: str) -> Source:
    """A single function. Raises as pair."""
    source = read(spec)
    return _chosen(source, source)


def read(spec: str) -> Source:
    """The source that a text, path or module names. Raises NotFound NO_FUNCTION, BenchmarkError UNREADABLE."""
    if "\n" in spec:
        native = spec.lstrip().startswith("/*")
        return _parsed(Source(spec, ".cpp" if native and "cudaStream_t" not in spec else ".cu" if native else ".py"))
    path, name = _file(spec)
    if path is None:
        located = _located(spec) if _MODULE.fullmatch(spec) else None
        if located is None:
            hint = "Give a file (slow.py or slow.py:function), a module (package.module:function), or a file's text."
            raise NotFound("NO_FUNCTION", f"There is no file or module {spec[:200]!r}.", hint)
        return located
    return _parsed(Source(read_text(path), path.suffix, path.resolve(), name=name))


def _file(spec: str) -> tuple[Path | None, str]:
    """The existing file that a text begins with, and the function's name after a colon."""
    for text, name in ((spec, ""), spec.rpartition(":")[::2]):
        path = Path(text).expanduser()
        if text and path.suffix in (".py", *launch_header.LANGUAGES) and path.is_file():
            return path, name
    return None, ""


def _located(spec: str) -> Source | None:
    """A module found on the search path without importing it or its packages."""
    dotted, _, name = spec.partition(":")
    folders: Sequence[str] | None = [os.getcwd(), *filter(None, sys.path)]
    module_spec = None
    parts = dotted.split(".")
    for count, part in enumerate(parts, 1):
        module_spec = importlib.machinery.PathFinder.find_spec(part if count == 1 else ".".join(parts[:count]), folders)
        if module_spec is None:
            return None
        folders = module_spec.submodule_search_locations
    if module_spec is None or module_spec.origin is None or not module_spec.origin.endswith(".py"):
        return None
    path = Path(module_spec.origin)
    up = len(parts) if path.name == "__init__.py" else len(parts) - 1
    root = path.parents[up]
    return _parsed(Source(read_text(path), ".py", path, dotted if len(parts) > 1 or up else "", root, name))


def _parsed(source: Source) -> Source:
    """The source with its public functions. Raises BenchmarkError UNREADABLE, UsageError SPECIFICATION."""
    if source.suffix != ".py":
        return source
    try:
        tree = ast.parse(source.text)
    except (SyntaxError, ValueError, RecursionError) as error:
        line = f" in line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        name = source.path.name if source.path else "The text"
        raise BenchmarkError("UNREADABLE", f"{name} has a syntax error{line}.") from None
    functions = [node.name for node in tree.body if isinstance(node, _FUNCTIONS)]
    if not functions:
        _refuse_specification(source, tree)
    public = [name for name in functions if not name.startswith(("_", "test_"))] or functions
    public = public or [*_callable_classes(tree), *_assigned(tree)] or _imported_names(tree)
    return replace(source, public=tuple(dict.fromkeys(public)))


def _refuse_specification(source: Source, tree: ast.Module) -> None:
    """A file with a class of a benchmark is one half of a pair of files. Raises UsageError SPECIFICATION."""
    for node in tree.body:
        bases = [ast.unparse(base) for base in node.bases] if isinstance(node, ast.ClassDef) else []
        if source.path and any(base.rpartition(".")[2].endswith("Benchmark") for base in bases):
            name = source.path.stem.removeprefix("baseline_")
            folder = source.path.parent
            raise UsageError(
                "SPECIFICATION",
                f"{source.path.name} specifies a benchmark; it defines no function.",
                f"Judge its candidates with aisp bench run --targets '*:{name}' --bench-root {folder}.",
            )


def _callable_classes(tree: ast.Module) -> dict[str, ast.FunctionDef]:
    """By name: the method that runs where an instance is called."""
    found = {}
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            methods = {part.name: part for part in node.body if isinstance(part, ast.FunctionDef)}
            if method := methods.get("__call__") or methods.get("forward"):
                found[node.name] = method
    return found


def _assigned(tree: ast.Module) -> list[str]:
    """Names that are assigned at the top level, and may be functions."""
    may_be = (ast.Lambda, ast.Call, ast.Name, ast.Attribute)
    assigned = [node for node in tree.body if isinstance(node, ast.Assign) and isinstance(node.value, may_be)]
    names = [target.id for node in assigned for target in node.targets if isinstance(target, ast.Name)]
    return [name for name in names if not name.startswith("_")]


def _imported_names(tree: ast.Module) -> list[str]:
    froms = [alias for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names]
    return [name for alias in froms if not (name := alias.asname or alias.name).startswith("_")]


def _chosen(source: Source, other: Source) -> Source:
    if source.suffix != ".py":
        return source
    name = source.name or _only(source, other)
    tree = ast.parse(source.text)
    node = next((node for node in tree.body if isinstance(node, _FUNCTIONS) and node.name == name), None)
    classes = _callable_classes(tree)
    known = {*source.public, *_assigned(tree), *_imported_names(tree), *classes}
    known |= {n.name for n in tree.body if isinstance(n, _FUNCTIONS)}
    if name not in known:
        choices = ", ".join(sorted(known)) or "no function"
        raise NotFound("NO_FUNCTION", f"{source.title} has no function {name[:60]!r}.", f"It defines {choices}.")
    if node is None and name in classes:
        return replace(source, name=name, parameters=_parameters(classes[name].args, of_instance=True))
    return replace(source, name=name, parameters=_parameters(node.args) if node else None)


def _only(source: Source, other: Source) -> str:
    """The function that needs no name. Raises UsageError AMBIGUOUS_FUNCTION, NotFound NO_FUNCTION."""
    if not source.public:
        raise _without_function(source, other)
    if len(source.public) == 1:
        return source.public[0]
    names = {other.name} if other.name else {*other.public}
    shared = [name for name in source.public if name in names]
    if source.path == other.path and source.path is not None:
        shared = []  # one file: the two functions in it need names
    if len(shared) == 1:
        return shared[0]
    if ENTRY in source.public:
        return ENTRY
    where, named = _named(source)
    if set(source.public) <= {*_imported_names(ast.parse(source.text))}:
        raise _without_function(source, other, f"; it imports {len(source.public)}", f", or name one of {named}")
    hint = f"Name one of them: {named}."
    raise UsageError("AMBIGUOUS_FUNCTION", f"{where} defines {len(source.public)} functions.", hint)


def _without_function(source: Source, other: Source, has: str = "", instead: str = "") -> NotFound:
    """The error for a file without a function of its own: the form of the other file's function is the one to write."""
    nodes = ast.parse(other.text).body if other.suffix == ".py" and other is not source else []
    known = {node.name: node for node in nodes if isinstance(node, _FUNCTIONS)}
    names = [name for name in (other.name, *other.public) if name in known]
    form = f"def {names[0]}({ast.unparse(known[names[0]].args)}): …" if names else "def run(x): …"
    hint = f"Put the code into a function that returns its result, `{form}`{instead}."
    return NotFound("NO_FUNCTION", f"{_named(source)[0]} defines no function{has}.", hint)


def _named(source: Source) -> tuple[str, str]:
    """The source for a message, and its public names with it."""
    where = source.path.name if source.path else "the text"
    return where, ", ".join(f"{where}:{name}" for name in source.public[:8])


def _parameters(args: ast.arguments, of_instance: bool = False) -> Parameters:
    """of_instance: the first one is the instance."""
    positional = [arg.arg for arg in (*args.posonlyargs, *args.args)][of_instance:]
    keyword = [arg.arg for arg in args.kwonlyargs]
    required = positional[: len(positional) - len(args.defaults)]
    required += [name for name, default in zip(keyword, args.kw_defaults, strict=True) if default is None]
    is_open = args.kwarg is not None or args.vararg is not None
    every = (*args.posonlyargs, *args.args, *args.kwonlyargs)
    written = {arg.arg: ast.unparse(arg.annotation) for arg in every if arg.annotation is not None}
    given = [*zip(reversed(positional), reversed(args.defaults), strict=False)]
    given += [(name, default) for name, default in zip(keyword, args.kw_defaults, strict=True) if default is not None]
    defaults = {name: ast.unparse(default) for name, default in given}
    return Parameters(tuple(positional), tuple(keyword), frozenset(required), is_open, written, defaults)


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name.partition(".")[0] for alias in node.names]
    return [node.module.partition(".")[0]] if isinstance(node, ast.ImportFrom) and node.module else []


def read_text(path: Path) -> str:
    """The text of a source file. Raises BenchmarkError UNREADABLE."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise BenchmarkError("UNREADABLE", f"{path.name} is larger than {MAX_BYTES // 1024} KiB.")
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BenchmarkError("UNREADABLE", f"{path.name} cannot be read: {error}.") from error
