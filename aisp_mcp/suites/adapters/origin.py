"""The origin of an adapted problem, and facts that a verdict on it has to disclose.

The specification carries these facts itself. So they are known wherever the pair is measured: right after it was
adapted, as a target of a suite, in an optimisation, and from the files of a stored run.
"""

from __future__ import annotations

import ast
import pprint
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from aisp_mcp.judge.candidate.formats.kernelbench import TRAINING
from aisp_mcp.judge.records.verdict import Comparison, Flag, Verdict
from aisp_mcp.suites.adapters import base

TRAINING_MODE = "training_mode"  # a flag
HINT = "right in evaluation mode? --mode eval measures after eval()"  # ends the sentence that has this flag
_MESSAGE = (
    "Right in evaluation mode? Problems with batch normalisation are judged as constructed, in training mode; "
    "--mode eval of bench verify and bench adapt measures after eval()."
)
_NAME = "adapted"


@dataclass(frozen=True)
class Origin:
    """format: of the problem's suite. fixed: inputs that are the same in every call. disclosed: sentences."""

    format: str
    fixed: Sequence[str]
    disclosed: Sequence[str]

    def line(self) -> str:
        """The statement that states these facts in a specification."""
        facts = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}
        return f"{_NAME} = {pprint.pformat(facts, width=100, sort_dicts=False)}"


def read(baseline: Path) -> Origin | None:
    """The facts in a specification; None if it was not adapted, or by a version that did not write them."""
    tree = base.parse(baseline)
    for node in tree.body if tree else ():
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == _NAME and isinstance(node.value, ast.Dict):
            try:
                return Origin(**ast.literal_eval(node.value))
            except (ValueError, TypeError):  # a variable of this name in a specification written by hand
                return None
    return None


def notes(baseline: Path) -> list[str]:
    """Explanations that a wrong candidate of this specification may have."""
    origin = read(baseline)
    return [_MESSAGE] if origin and TRAINING in origin.disclosed else []


def disclosed(comparison: Comparison, baseline: Path) -> Comparison:
    """The verdict with what could not be hidden from the candidate, if the specification was adapted."""
    if (origin := read(baseline)) is None:
        return comparison
    facts = {**comparison.disclosed, "adapted_from": origin.format, "adapted": list(origin.disclosed)}
    update: dict[str, Any] = {"disclosed": facts, "flags": list(comparison.flags)}
    if comparison.verdict is Verdict.INCORRECT and (explained := notes(baseline)):
        update["flags"] += [Flag(code=TRAINING_MODE, severity="note", message=message) for message in explained]
        update["sentence"] = f"{comparison.sentence}; {HINT}"
    if origin.fixed:
        message = f"The candidate may know these inputs, which are the same in every call: {', '.join(origin.fixed)}."
        flag = Flag(code="inputs_not_fresh", severity="warn", message=message, evidence={"inputs": list(origin.fixed)})
        update["flags"].append(flag)
    return comparison.model_copy(update=update)
