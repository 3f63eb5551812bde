"""A candidate in a problem's own form, a module with ModelNew, as a candidate of the adapted problem."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

from aisp_mcp.errors import UsageError
from aisp_mcp.judge.source_facts import ENTRIES
from aisp_mcp.suites.adapters import base

CLASSES = ("ModelNew", "Model")  # the first that a candidate defines
_FOOTER = '''

def _adapted():
    """{kind} as the run() of the adapted problem: added when this file was submitted."""
    from pathlib import Path

    from aisp_mcp.suites.adapters.kernelbench import Candidate
    from aisp_mcp.suites.adapters.runtime import Buffer, Slot

    return Candidate(
        Path(__file__).parent / {folder!r},
        kind={kind},
        arguments={arguments},
        **{settings},
    )


_candidate = _adapted()
prepare = _candidate.prepare
run = _candidate.run
'''


def is_accepted(baseline: Path) -> bool:
    """Return True if candidates of this specification may have the form of its suite."""
    return _reference(baseline) is not None


def with_run(text: str, baseline: Path) -> str:
    """The text of a candidate with run(), if it has none and the specification's suite judges classes.

    Raises UsageError AMBIGUOUS for a class in a file that uses the names of the judge's own functions.
    """
    try:
        names = base.defined(ast.parse(text))
    except (SyntaxError, ValueError, RecursionError):
        return text
    kind = next((name for name in CLASSES if name in names), None)
    is_function = bool(names & ENTRIES) and kind != CLASSES[0]
    if kind is None or is_function or (reference := _reference(baseline)) is None:
        return text
    if taken := sorted(names & {*ENTRIES, "prepare"}):
        message = f"The candidate defines {kind} and {taken[0]}, by which the judge calls it."
        raise UsageError("AMBIGUOUS", message, f"Rename {taken[0]}, or leave out {kind}.")
    folder, settings, arguments = reference
    facts = {"folder": folder, "settings": ast.unparse(settings), "arguments": ast.unparse(arguments)}
    return text.rstrip() + "\n" + _FOOTER.format(kind=kind, **facts)


def _reference(baseline: Path) -> tuple[str, Any, Any] | None:
    """Folder, settings and arguments of an adapted KernelBench problem, from its `reference = Reference(...)`."""
    tree = base.parse(baseline)
    if tree is None or "aisp_mcp.suites.adapters.kernelbench" not in {
        node.module for node in tree.body if isinstance(node, ast.ImportFrom)
    }:
        return None
    calls = [node.value for node in tree.body if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)]
    for call in calls:
        given = {keyword.arg: keyword.value for keyword in call.keywords}
        if ast.unparse(call.func) == "Reference" and isinstance(call.args[0], ast.BinOp):
            return ast.literal_eval(call.args[0].right), given[None], given["arguments"]
    return None
