"""The arguments of a user's function in a recorded call of an operator: by name, and the others by their order."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from aisp_mcp.errors import UsageError
from aisp_mcp.judge.functions.inputs import Argument
from aisp_mcp.judge.functions.makers import Draw, Number
from aisp_mcp.judge.functions.sources import Parameters
from aisp_mcp.profile.operators import aten, names
from aisp_mcp.profile.operators.targets import Operator

_TENSOR = re.compile(r"\b(Tensor|ndarray|Any|object)\b")


@dataclass(frozen=True)
class Recorded:
    """An argument of the operator. name: as torch declares it, or empty. given: None if it cannot be made again."""

    name: str
    is_tensor: bool
    given: Argument | None


@dataclass(frozen=True)
class Binding:
    """The function's arguments in a call of an operator; none if they do not fit. order: says which tensors were given
    by their order alone, where another order would have been wrong.
    """

    arguments: Sequence[Argument] = ()
    order: str = ""


def bind(operator: Operator, parameters: Parameters | None) -> Binding:
    """The function's arguments in a call of this operator.

    A parameter with the name of one of the operator's arguments gets that. The others get the tensors that are left; or
    if they are more, the arguments that are left, with all tensors among them. Raises UsageError BAD_WORKLOAD if both
    are possible and differ.
    """
    every = recorded(operator)
    if parameters is None:
        return Binding([each.given for each in every if each.is_tensor and each.given])
    bound = _named(every, parameters)
    left = [each for each in every if not any(each is one for one in bound.values())]
    free = [name for name in parameters.positional if name not in bound]
    tensors = [each for each in left if each.is_tensor]
    if parameters.open and not bound and len(tensors) > len(free):
        return Binding([each.given for each in tensors if each.given])
    by_order = _first(free, tensors, parameters)
    for count in range(len(free), len(tensors), -1):
        with_values = _first(free[:count], left[:count], parameters)
        if with_values is None or not all(any(each is one for one in left[:count]) for each in tensors):
            continue
        if by_order is None:
            by_order = with_values
        elif any(by_order.get(name) is not one for name, one in with_values.items() if one.is_tensor):
            raise _ambiguous(operator, every, free)
        break
    if by_order is None or not parameters.required <= {*bound, *by_order}:
        return Binding()
    return Binding(_written(bound, by_order, parameters), _order(operator, by_order))


def recorded(operator: Operator) -> list[Recorded]:
    """The operator's arguments in order."""
    known = names.of_arguments(operator.name, operator.types) or [""] * len(operator.types)
    return [
        Recorded(name, kind in aten.DTYPES, _argument(operator, at))
        for at, (name, kind) in enumerate(zip(known, operator.types, strict=True))
    ]


def _named(every: Sequence[Recorded], parameters: Parameters) -> dict[str, Recorded]:
    """The recorded arguments by those parameters that have their names; torch's functions call `self` input."""
    by_name = {each.name: each for each in every if each.name}
    if "self" in by_name:
        by_name.setdefault("input", by_name["self"])
    wanted = (*parameters.positional, *parameters.keyword)
    return {name: by_name[name] for name in wanted if name in by_name and _takes(parameters, name, by_name[name])}


def _first(free: Sequence[str], left: Sequence[Recorded], parameters: Parameters) -> dict[str, Recorded] | None:
    """One recorded argument for each of the first parameters; None if one does not fit or a required one gets none."""
    absent = [name for name in free[len(left) :] if name in parameters.required]
    if len(left) > len(free) or absent:
        return None
    found = dict(zip(free, left, strict=False))
    return found if all(_takes(parameters, name, one) for name, one in found.items()) else None


def _takes(parameters: Parameters, name: str, one: Recorded) -> bool:
    """Return False if the argument is unknown, or the parameter's annotation or default speaks against it."""
    if one.given is None:
        return False
    default = parameters.defaults.get(name, "None")
    annotation = parameters.annotations.get(name, "")
    if one.is_tensor:
        return default == "None" and (not annotation or bool(_TENSOR.search(annotation)))
    if one.given.text == "None":
        return default == "None"
    kinds = {type(_literal(one.given.text)), type(_literal(default))}  # a number also stands for a list of sizes
    if default != "None" and len(kinds) > 1 and kinds & {str, bool}:
        return False
    return not re.search(r"\b(Tensor|ndarray)\b", annotation)


def _literal(text: str) -> object:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _written(bound: Mapping[str, Recorded], by_order: Mapping[str, Recorded], known: Parameters) -> list[Argument]:
    """Arguments by name; those at the function's begin that were found by their order, by position. A value that is the
    parameter's default is left out: a candidate may lack that parameter.
    """
    written, by_position = list[Argument](), True
    for name in (*known.positional, *known.keyword):
        by_position = by_position and name in by_order
        given = one.given if (one := by_order.get(name) or bound.get(name)) else None
        is_default = given and name in known.defaults and _literal(given.text) == _literal(known.defaults[name])
        if given and not (is_default and name in bound):
            written.append(given if by_position else replace(given, name=name))
    return written


def _order(operator: Operator, by_order: Mapping[str, Recorded]) -> str:
    tensors = {name: one for name, one in by_order.items() if one.is_tensor and one.name}
    forms = {
        (len(draw.shape), draw.integer) for one in tensors.values() if one.given for draw in one.given.draws.values()
    }
    if len(forms) < 2:
        return ""
    given = ", ".join(f"{name} is {one.name}" for name, one in tensors.items())
    return f"By the order of {operator.name}, {given}; where that is wrong, name the parameters as the operator does."


def _ambiguous(operator: Operator, every: Sequence[Recorded], free: Sequence[str]) -> UsageError:
    message = f"Which argument of {operator.name} is {', '.join(free)} cannot be told from the trace."
    known = ", ".join(each.name or "?" for each in every)
    hint = f"Name the function's parameters as the operator does: {known}." if every[0].name else None
    return UsageError("BAD_WORKLOAD", message, hint or "Write a function that takes the tensors alone, in their order.")


def _argument(operator: Operator, at: int) -> Argument | None:
    kind, dims = operator.types[at], operator.dims[at]
    if kind in aten.DTYPES:
        if not all(isinstance(size, int) and size > 0 for size in dims):
            return None
        label = f"input_{at}"
        draw = Draw(aten.draw(vars(operator), at), "tensor", tuple(Number(size, str(size)) for size in dims),
                    integer=not aten.DTYPES[kind].startswith(("float", "bfloat")))  # fmt: skip
        return Argument(None, label, {label: draw})
    try:
        return Argument(None, aten.value("", kind, operator.concrete[at]))
    except aten.NoTarget:
        return None
