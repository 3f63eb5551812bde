"""A candidate in the form of a problem's own suite, such as a module with ModelNew, as one of the adapted problem."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aisp_mcp.errors import UsageError
from aisp_mcp.judge.candidate.formats.kernelbench import PROBLEM
from aisp_mcp.judge.candidate_needs import DECLARED, requirements
from aisp_mcp.judge.loading import problem_files
from aisp_mcp.judge.source_facts import ENTRIES
from aisp_mcp.suites.adapters import base
from aisp_mcp.suites.adapters.kernelbench import default_function


@dataclass(frozen=True)
class _Suite:
    """entries: names that its candidates define, and the argument of the adapter's Candidate for each; the first one
    that a text has counts. settings: Candidate takes those of Reference too. help: for the page of an optimisation.
    """

    entries: Mapping[str, str]
    settings: bool
    help: str


SUITES = {
    "kernelbench": _Suite(
        {"ModelNew": "kind", "Model": "kind"},
        True,
        "A file with the class `ModelNew`, or with a solution's `Model`, is judged as well.",
    ),
    "gpumode": _Suite(
        {"custom_kernel": "function"},
        False,
        "A submission with `custom_kernel(data)` is judged as well; it may import the task's own modules.",
    ),
    "flashinfer": _Suite(
        {"run": "function"},
        False,
        "A solution's `run` with the definition's scalars, or memory for the outputs, is judged as well.",
    ),
}
# The folders of the class Reference: today, and in the specifications of earlier versions.
FORMATS = ("aisp_mcp.judge.candidate.formats", "aisp_mcp.suites.adapters")
_FOOTER = '''

{declared} = {needs!r}


def _adapted():
    """{entry} as the run() of the adapted problem: added when this file was submitted."""
    from pathlib import Path

    from aisp_mcp.judge.candidate.adapted import Buffer, Slot
    from aisp_mcp.judge.candidate.formats.{format} import Candidate

    return Candidate(
        Path(__file__).parent / {folder!r},
        {keyword}={entry},
        arguments={arguments},
        **{settings},
    )


_candidate = _adapted()
prepare = _candidate.prepare
run = _candidate.run
'''
_PATH = "import sys; sys.path.insert(0, __file__.rpartition('/')[0] + '/{folder}'); "


@dataclass(frozen=True)
class _Adapted:
    """Facts of an adapted problem, from its specification. replaced: a function that its Model calls as `fn`."""

    format: str
    folder: str
    settings: dict[str, Any]
    arguments: ast.expr
    modules: tuple[str, ...]
    replaced: str

    @property
    def entries(self) -> Mapping[str, str]:
        """Names that candidates may define, and the argument of Candidate for each."""
        return {**SUITES[self.format].entries, **({self.replaced: "function"} if self.replaced else {})}


def help_of(baseline: Path) -> str:
    """A line about the other form that candidates of this specification may have; empty if there is none."""
    adapted = _adapted(baseline)
    if adapted is None:
        return ""
    replaced = f"So is one with `{adapted.replaced}`, which the problem's own `Model` then calls.\n"
    return f"{SUITES[adapted.format].help}\n{replaced if adapted.replaced else ''}"


def with_run(text: str, baseline: Path) -> str:
    """The text of a candidate with run(), if it has the form of the suite that the specification was adapted from.

    Raises UsageError AMBIGUOUS for one that also defines a name that the judge uses to call a candidate.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return text
    if (adapted := _adapted(baseline)) is None:
        return text
    names = base.defined(tree)
    entry = next((name for name in adapted.entries if name in names), None)
    settings: dict[str, Any] | None = adapted.settings if SUITES[adapted.format].settings else {}
    if entry in ENTRIES:
        settings = _solution_settings(tree, entry, adapted)
    if entry is None or settings is None:
        return text
    if taken := sorted(names & {*ENTRIES, "prepare"} - {entry}):
        message = f"The candidate defines both {entry} and {taken[0]}, and the judge uses the name {taken[0]} itself."
        raise UsageError("AMBIGUOUS", message, f"Rename {taken[0]}, or leave out {entry}.")
    footer = _FOOTER.format(
        declared=DECLARED,
        needs=requirements(text, adapted.modules),
        entry=entry,
        format=adapted.format,
        folder=adapted.folder,
        keyword=adapted.entries[entry],
        arguments=ast.unparse(adapted.arguments),
        settings=settings,
    )
    return _with_path(text, tree, adapted).rstrip() + "\n" + footer


def _solution_settings(tree: ast.Module, name: str, adapted: _Adapted) -> dict[str, Any] | None:
    """Settings of Candidate for a solution that takes all inputs of its definition, and perhaps memory for the outputs;
    None for one that takes just the tensors, as the judge's own candidates do.
    """
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name]
    number = len(functions[-1].args.posonlyargs + functions[-1].args.args) if functions else 0
    given = adapted.arguments.elts if isinstance(adapted.arguments, ast.List) else []
    outputs = adapted.settings.get("outputs", {})
    if outputs and number == len(given) + len(outputs):
        return {"outputs": outputs}
    return {} if number == len(given) and any(isinstance(each, ast.Constant) for each in given) else None


def _with_path(text: str, tree: ast.Module, adapted: _Adapted) -> str:
    """The text, in which the first import of the problem's own modules finds them; its lines keep their numbers."""
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom) and _modules(node) & set(adapted.modules):
            lines = text.splitlines(keepends=True)
            lines[node.lineno - 1] = _PATH.format(folder=adapted.folder) + lines[node.lineno - 1]
            return "".join(lines)
    return text


def _modules(node: ast.Import | ast.ImportFrom) -> set[str]:
    names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
    return {name.partition(".")[0] for name in names}


def _adapted(baseline: Path) -> _Adapted | None:
    """The facts of an adapted problem, from its `reference = Reference(...)`; None for other specifications."""
    tree = base.parse(baseline)
    imported = {node.module for node in tree.body if isinstance(node, ast.ImportFrom)} if tree else set()
    formats = [name for name in SUITES if {f"{folder}.{name}" for folder in FORMATS} & imported]
    calls = [node.value for node in tree.body if isinstance(node, ast.Assign)] if tree and formats else []
    for call in calls:
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "Reference" and isinstance(call.args[0], ast.BinOp):
            given: dict[Any, ast.expr] = {keyword.arg: keyword.value for keyword in call.keywords}
            folder = str(ast.literal_eval(call.args[0].right))
            modules = tuple(file.stem for file in problem_files(baseline))
            settings = ast.literal_eval(given[None])
            replaced = (
                default_function(base.parse(baseline.parent / folder / PROBLEM)) if formats[0] == "kernelbench" else ""
            )
            return _Adapted(formats[0], folder, settings, given["arguments"], modules, replaced)
    return None
