"""Evaluate the formulas of plan/data/formulas.yaml: each step's value comes from its printed formula."""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping
from functools import cache

from pydantic import Field

from aisp_mcp.errors import UsageError
from aisp_mcp.plan.data import tables
from aisp_mcp.records import Record

_OPERATORS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv, ast.Pow: math.pow,
}  # fmt: skip
_FUNCTIONS: dict[str, Callable[..., float]] = {"max": max, "min": min, "sqrt": math.sqrt, "log2": math.log2}
_NAME = re.compile(r"[a-z_][a-z_0-9]*")


class Step(Record):
    """One formula, as printed and with its numbers."""

    name: str
    unit: str = ""
    formula: str


class Line(Record):
    """A step's value."""

    name: str
    value: float
    unit: str
    formula: str
    numbers: str = Field(description="The formula with its numbers.")


class Question(Record):
    """Steps in order; answer: the first of these names that is known is the headline."""

    about: str
    source: str
    steps: list[Step]
    answer: list[str]

    def inputs(self) -> set[str]:
        """Names that a caller can give."""
        return {name for step in self.steps for name in (*names(step.formula), step.name)} & set(bounds())


class Bound(Record):
    """Meaning and range of an input; exclusive: the lower bound itself is refused."""

    meaning: str
    least: float
    most: float
    exclusive: bool


@cache
def questions() -> dict[str, Question]:
    """Name to question."""
    rows = tables.plan_document("formulas.yaml")["questions"]
    return {name: Question.model_validate(row) for name, row in rows.items()}


@cache
def bounds() -> dict[str, Bound]:
    """Name of an input to its range."""
    limits = {}
    for name, (meaning, least, most) in tables.plan_document("formulas.yaml")["inputs"].items():
        exclusive = isinstance(least, str)
        limits[name] = Bound(meaning=meaning, least=float(least), most=float(most), exclusive=exclusive)
    return limits


def names(formula: str) -> list[str]:
    """Inputs and earlier steps that a formula uses."""
    return [name for name in dict.fromkeys(_NAME.findall(re.sub(r"\d+e-?\d+", "", formula))) if name not in _FUNCTIONS]


def evaluate(formula: str, values: Mapping[str, float]) -> float:
    """The formula's value. Raises KeyError for a name without a value."""
    return _value(ast.parse(formula, mode="eval").body, values)


def _value(node: ast.expr, values: Mapping[str, float]) -> float:
    match node:
        case ast.Constant(value=int() | float() as number):
            return float(number)
        case ast.Name(id=name):
            return values[name]
        case ast.BinOp(left=left, op=op, right=right):
            return _OPERATORS[type(op)](_value(left, values), _value(right, values))
        case ast.Call(func=ast.Name(id=name), args=args):
            return _FUNCTIONS[name](*(_value(arg, values) for arg in args))
    raise ValueError(f"not part of a formula: {ast.dump(node)[:80]}")


def check(question: Question, values: Mapping[str, float]) -> None:
    """Raise UsageError UNKNOWN_VALUE, BAD_VALUE."""
    for name, value in values.items():
        if name not in question.inputs():
            known = ", ".join(f"{key} ({bounds()[key].meaning})" for key in sorted(question.inputs()))
            raise UsageError("UNKNOWN_VALUE", f"'{name[:40]}' is not an input of this question.", f"Inputs: {known}.")
        bound = bounds()[name]
        if not bound.least <= value <= bound.most or (bound.exclusive and value == bound.least):
            above = "above" if bound.exclusive else "from"
            text = f"{name} = {value:g}: {bound.meaning} must be {above} {bound.least:g} to {bound.most:g}."
            raise UsageError("BAD_VALUE", text, "Check the unit in the input's name.")


def solve(question: Question, values: Mapping[str, float]) -> list[Line]:
    """Every step that can run, in order. Raises UsageError MISSING_VALUE if none of the answers can be reached."""
    known, lines = dict(values), []
    for step in question.steps:
        used = names(step.formula)
        if step.name in known or not all(name in known for name in used):
            continue
        try:
            known[step.name] = evaluate(step.formula, known)
        except (ZeroDivisionError, OverflowError, ValueError) as error:
            text = f"{step.formula} has no value: {str(error)[:80]}."
            raise UsageError("BAD_VALUE", text, "Check the values.") from None
        numbers = _NAME.sub(lambda match: _number(match[0], known), step.formula)
        value = known[step.name]
        lines.append(Line(name=step.name, value=value, unit=step.unit, formula=step.formula, numbers=numbers))
    if not any(name in known and name not in values for name in question.answer):
        raise UsageError("MISSING_VALUE", *_missing(question, known))
    return lines


def _number(name: str, known: Mapping[str, float]) -> str:
    return f"{known[name]:.6g}" if name in known else name


def _missing(question: Question, known: Mapping[str, float]) -> tuple[str, str]:
    """Missing inputs of the steps towards an answer."""
    lacking = [f"{step.name} = {step.formula} lacks {', '.join(n for n in names(step.formula) if n not in known)}"
               for step in question.steps if step.name not in known]  # fmt: skip
    return f"Too few values: {'; '.join(lacking)[:400]}.", "Give them as values, or a model or gpu that has them."


def headline(question: Question, lines: list[Line]) -> Line:
    """The line that answers the question."""
    by_name = {line.name: line for line in lines}
    return next(by_name[name] for name in question.answer if name in by_name)
