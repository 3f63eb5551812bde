"""The folder that an optimiser works in: the specification and a page of rules, and no earlier solution.

Earlier solutions are elsewhere: next to the specification, in the store, in the history of a repository. From isolation
level L2 on, a candidate can read none of these, and code that equals a known solution is reported.
"""

from __future__ import annotations

import ast
import hashlib
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from importlib.util import decode_source
from pathlib import Path

import aisp_mcp
from aisp_mcp.errors import UsageError
from aisp_mcp.judge import source_facts
from aisp_mcp.judge.loading import common_of, problem_files
from aisp_mcp.optimize import canonical
from aisp_mcp.optimize.records import Budget
from aisp_mcp.server import files
from aisp_mcp.suites.adapters import own_form
from aisp_mcp.suites.records import Target

README = """# Make `{target}` faster

`{baseline}` specifies what is computed: its inputs, static parameters, tolerance and a slow `{entry}`. Write a Python
file that defines `{entry}` with the same arguments and the same result, such as `candidate.py` in this folder:

    def {entry}({arguments}):
        ...

It may define `prepare(params, example)` as well, which transforms static parameters once, before anything is timed.
{own_form}
    aisp optimize submit candidate.py --session {id}     # judge one candidate
    aisp optimize board {id}                             # what has been judged, and what is left
    aisp optimize finish {id}                            # measure the leaders again, and end

The same tools over MCP: `aisp_optimize_submit`, `aisp_optimize_board`, `aisp_optimize_finish`; a candidate may be given
as text. The budget is {candidates} candidates and {minutes:g} minutes; {patience} candidates in a row without
improvement beyond noise end it as well.

Each candidate runs in its own processes, on inputs that it has not seen, and every output can be compared. One that
is judged `invalid` is not run again. A first `faster` is provisional: the luckiest of many looks faster than it is.
{end}"""
END_TEMPORARY = "`finish` moves this folder into the store, with everything in it.\n"


def make(requested: str | None, allowed: Sequence[Path]) -> tuple[Path, bool]:
    """Create an empty folder for its owner alone; also return whether it is temporary.

    requested: a new or empty folder that may be written. Raises Refused OUTSIDE_ROOTS, UsageError NOT_EMPTY.
    """
    if requested is None:
        return Path(tempfile.mkdtemp(prefix="aisp-optimize-")).resolve(), True
    hint = "Leave the workspace out for a temporary one, or start with --allow-write DIR."
    folder = files.require_inside(Path(requested), allowed, hint)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise UsageError(
            "NOT_EMPTY", f"{folder} is not empty.", "With earlier work in it, this would not be a fresh start."
        )
    return folder, False


def fill(folder: Path, baseline: Path, session: str, target: Target, budget: Budget, temporary: bool) -> None:
    """Put the specification and the rules into the workspace."""
    text = baseline.read_text("utf-8")
    (folder / baseline.name).write_text(text, "utf-8")
    if (common := common_of(baseline)).is_file():
        (folder / common.name).write_text(common.read_text("utf-8"), "utf-8")
    copy_problem(baseline, folder)
    entry, arguments = _entry(text)
    page = README.format(
        id=session,
        target=target.name,
        baseline=baseline.name,
        entry=entry,
        arguments=arguments,
        own_form=own_form.help_of(baseline),
        end=END_TEMPORARY if temporary else "",
        **budget.model_dump(),
    )
    (folder / "README.md").write_text(page, "utf-8")


def _entry(text: str) -> tuple[str, str]:
    """Name and arguments of the specification's run(), or of an engine's serve()."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef) and node.name in source_facts.ENTRIES:
            names = _tensors(text) if node.args.kwarg and not node.args.args[1:] else ()
            return node.name, ", ".join(names) or ast.unparse(node.args).removeprefix("self").removeprefix(", ")
    return "run", ", ".join(_tensors(text)) or "..."


def _tensors(text: str) -> list[str]:
    """Names of the inputs and static tensors that the specification's methods return."""
    methods = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
    methods.sort(key=lambda node: node.name)  # inputs before params
    returned = [
        statement.value
        for method in methods
        for statement in ast.walk(method)
        if method.name in ("inputs", "params") and isinstance(statement, ast.Return)
    ]
    keys = [key for value in returned if isinstance(value, ast.Dict) for key in value.keys]
    names = [key.value for key in keys if isinstance(key, ast.Constant)]
    return [name for name in names if isinstance(name, str) and name.isidentifier()]


def copy_problem(baseline: Path, folder: Path) -> None:
    """Copy the files of an adapted problem that its specification runs, without the candidates next to them."""
    for file in problem_files(baseline):
        (folder / file.parent.name).mkdir(exist_ok=True)
        (folder / file.parent.name / file.name).write_text(file.read_text("utf-8"), "utf-8")


def hidden(roots: Iterable[Path], home: Path) -> list[str]:
    """Folders with earlier solutions: suites, histories of git, the store, and the working folder."""
    suites = [root.resolve() for root in roots]
    suites.append(Path(aisp_mcp.__file__).parent / "_suites")
    here = Path.cwd().resolve()
    paths = {*suites, home.resolve(), *(above / ".git" for root in (*suites, here) for above in (root, *root.parents))}
    if len(here.parts) > 2 and here != Path.home():  # system folders and a whole home cannot be hidden
        paths.add(here)
    return sorted(str(path) for path in paths if path.is_dir())


def fingerprint(text: str) -> str:
    """SHA-256 of the code in a form that comments, aliases, names of locals and dead code do not affect."""
    try:
        form = canonical.canonical(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        form = text
    return hashlib.sha256(form.encode("utf-8", "replace")).hexdigest()


def as_read(source: bytes) -> str:
    """The text of a module as Python reads it: a declared encoding may turn a comment into code."""
    try:
        return decode_source(source)
    except (SyntaxError, UnicodeDecodeError):
        return source.decode("utf-8", "replace")


def known(target: Target, earlier: Iterable[tuple[str, Path]]) -> dict[str, str]:
    """Fingerprints of the target's own candidates and of earlier ones, with their names."""
    return {fingerprint(as_read(source)): name for name, source in _sources([*_variants(target), *earlier])}


def _variants(target: Target) -> Iterator[tuple[str, Path]]:
    for variant in target.variants:
        yield Path(variant.path).name, Path(variant.path)


def _sources(files: Iterable[tuple[str, Path]]) -> Iterator[tuple[str, bytes]]:
    for name, path in files:
        with suppress(OSError):
            yield name, path.read_bytes()
