"""Formulas of plan/data/formulas.yaml, evaluated with the caller's values and the facts of a model and a GPU.

The value of each step is computed from its printed formula.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache

from pydantic import Field

from aisp_mcp.errors import UsageError
from aisp_mcp.plan import lookup, parameters
from aisp_mcp.plan.architecture import Architecture
from aisp_mcp.plan.data import tables
from aisp_mcp.plan.gemm import WIDTH
from aisp_mcp.plan.records import Planned, Source
from aisp_mcp.records import Record

READ_ON = "2026-11-24"


class Calculation(Record):
    """The answer, and every step with its formula and numbers."""

    headline: str
    value: float
    unit: str
    steps: list[Line]


def answer(
    name: str,
    values: Sequence[str],
    model: str | None,
    gpu: str | None,
    dtype: str,
) -> Planned[Calculation]:
    """Answer a question. Raises UsageError UNKNOWN_VALUE, BAD_VALUE, MISSING_VALUE and those of the look-ups;
    Unavailable NO_PEAK.
    """
    question = questions()[name]
    given = parse(values)
    check(question, given)
    arch = lookup.architecture(model) if model else None
    facts = lookup.gpu(gpu) if gpu else None
    known = _of_model(arch) | {"element_bytes": WIDTH[dtype]}
    if facts is not None:
        lookup.require_dtype(facts, [dtype])
        known |= {"peak_tflops": facts.peak[dtype].dense, "bandwidth_gb_s": facts.memory.bandwidth_bytes_s / 1e9}
    if arch is not None and "seq" in given:
        lookup.require_context(arch, int(given["seq"]))
    usable = {key: value for key, value in known.items() if key in question.inputs()} | given
    _check_peak(question, usable)
    lines = solve(question, usable)
    line = headline(question, lines)
    return Planned[Calculation](
        answer=Calculation(
            headline=f"{line.name} = {line.numbers} = {line.value:.6g} {line.unit}".strip(),
            value=line.value,
            unit=line.unit,
            steps=lines,
        ),
        assumptions=[
            "Exact arithmetic: no band.",
            *(f"{key} = {value:.6g}" for key, value in (usable | given).items()),
        ],
        band={},
        not_modelled=["Everything that the formula ignores: it is a hand calculation, not a prediction for a machine."],
        definitions={key: bounds()[key].meaning for key in sorted(question.inputs())},
        check_here="aisp hw roofline",
        sources=[Source(what=question.source, as_of=READ_ON), *lookup.sources(facts, arch)],
    )


_UNITS = {"k": 1e3, "K": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12}


def parse(values: Sequence[str]) -> dict[str, float]:
    """NAME=NUMBER texts as numbers, with k, M, B or G, T for powers of 1,000. Raises UsageError BAD_VALUE."""
    given_values: dict[str, float] = {}
    for text in values:
        name, equals, number = text.partition("=")
        try:
            value = float(number[:-1]) * _UNITS[number[-1]] if number[-1:] in _UNITS else float(number)
        except ValueError:
            value = math.nan
        if not equals or not math.isfinite(value) or name.strip() in given_values:
            raise UsageError("BAD_VALUE", f"'{text[:60]}' is not NAME=NUMBER, once each.", "For example m=4096 n=1e4.")
        given_values[name.strip()] = value
    return given_values


def _of_model(arch: Architecture | None) -> dict[str, float]:
    if arch is None:
        return {}
    a = arch.attention
    return {
        "parameters": parameters.matmul(arch), "total": parameters.total(arch), "active": parameters.active(arch),
        "vocab": arch.vocab,
        "layers": a.layers, "hidden": a.heads * a.head_dim, "heads": a.heads,
        "kv_heads": a.kv_heads, "head_dim": a.head_dim,
    }  # fmt: skip


def _check_peak(question: FormulaQuestion, values: Mapping[str, float]) -> None:
    """Raise UsageError BAD_VALUE for a rate above the peak it is compared with."""
    if question.answer == ["mfu"] and values.get("tflops", 0) > values.get("peak_tflops", math.inf):
        text = f"{values['tflops']:g} TFLOP/s exceed the peak of {values['peak_tflops']:g}."
        raise UsageError("BAD_VALUE", text, "Check GPU and dtype: sparse peaks are twice the dense ones.")


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


class FormulaQuestion(Record):
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
def questions() -> dict[str, FormulaQuestion]:
    rows = tables.plan_document("formulas.yaml")["questions"]
    return {name: FormulaQuestion.model_validate(row) for name, row in rows.items()}


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


def check(question: FormulaQuestion, values: Mapping[str, float]) -> None:
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


def solve(question: FormulaQuestion, values: Mapping[str, float]) -> list[Line]:
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


def _missing(question: FormulaQuestion, known: Mapping[str, float]) -> tuple[str, str]:
    """Missing inputs of the steps towards an answer."""
    lacking = [f"{step.name} = {step.formula} lacks {', '.join(n for n in names(step.formula) if n not in known)}"
               for step in question.steps if step.name not in known]  # fmt: skip
    return f"Too few values: {'; '.join(lacking[:4])}.", "Give them as values, or a model or gpu that has them."


def headline(question: FormulaQuestion, lines: list[Line]) -> Line:
    by_name = {line.name: line for line in lines}
    return next(by_name[name] for name in question.answer if name in by_name)
