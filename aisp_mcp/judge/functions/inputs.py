"""The language of `--inputs`: the arguments of a call, such as `x=randn(4096,64), k=3`, parsed and never evaluated.

A value is a number, a text, True, False, None, a list, tuple or dict of values, or a call of one of the makers below,
to which numbers may be added and by which it may be multiplied: `x=2 * rand(4096) - 1`. A number may be an expression
of numbers and of earlier names: `n=4096, x=randn(n,n)`. See docs/functions.md.
"""

from __future__ import annotations

import ast
import difflib
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from aisp_mcp.errors import UsageError
from aisp_mcp.judge.functions import makers
from aisp_mcp.judge.functions.makers import Draw, Form, Number

MAX_CHARS = 4000
MAX_ELEMENTS = 2**34  # of one tensor
LIBRARIES: dict[str, Form] = {"torch": "tensor", "np": "array", "numpy": "array"}
EXAMPLE = 'x=randn(4096,64), k=3, mode="fast"'
_OWN = "Anything else comes from a generator of your own: --make gen.py:make."
_COMPUTED = f"A maker may be added to, multiplied and divided by a number: 2 * rand(4096) - 1. {_OWN}"
_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv, ast.Pow: operator.pow,
}  # fmt: skip
_SIGNS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "//", ast.Div: "/", ast.Pow: "**"}


@dataclass(frozen=True)
class Argument:
    """One argument of the call. name: None for a positional one. text: its expression over the names of `draws`.

    number: its value, if it is one number, which later shapes may use.
    """

    name: str | None
    text: str
    draws: Mapping[str, Draw] = field(default_factory=dict)
    number: int | float | None = None


def read(
    text: str, library: Literal["torch", "numpy"] = "torch", replaced: Mapping[str, int] | None = None
) -> list[Argument]:
    """The arguments in order. Raises UsageError BAD_INPUTS.

    library: which library a maker without a prefix belongs to. replaced: other values for numbers that the text names.
    """
    if len(text) > MAX_CHARS:
        raise _bad(f"The inputs are longer than {MAX_CHARS} characters.")
    try:
        call = ast.parse(f"_({text})", mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise _bad(f"{text[:80]!r} cannot be parsed: {getattr(error, 'msg', error)}.") from None
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "_"):
        raise _bad(f"{text[:80]!r} is not a list of arguments.")
    reader = _Reader(LIBRARIES[library], replaced or {})
    nodes = [(None, node) for node in call.args] + [(keyword.arg, keyword.value) for keyword in call.keywords]
    arguments = []
    for index, (name, node) in enumerate(nodes):
        if isinstance(node, ast.Starred) or (name is None and index >= len(call.args)):
            raise _bad("Arguments cannot be unpacked here.")
        if name == "self":
            raise _bad("An input cannot be named 'self'.", "Give it by its position.")
        arguments.append(reader.argument(name, name or f"input_{index}", node))
    labels = [label for argument in arguments for label in argument.draws]
    if repeated := next((label for label in labels if labels.count(label) > 1), None):
        raise _bad(f"Two inputs are named {repeated!r}.")
    return arguments


def _bad(message: str, hint: str | None = None) -> UsageError:
    return UsageError("BAD_INPUTS", message, hint or f"Write arguments as in a call: {EXAMPLE}.")


class _Reader:
    """Reads values. form: of a maker without a prefix. replaced: other values for named numbers."""

    def __init__(self, form: Form, replaced: Mapping[str, int]) -> None:
        self.form, self.replaced = form, replaced
        self.sizes: dict[str, int | float] = {}
        self.draws: dict[str, Draw] = {}

    def argument(self, name: str | None, label: str, node: ast.expr) -> Argument:
        """One argument with all its draws."""
        self.draws = {}
        if name is not None and name in self.replaced:
            node = ast.Constant(self.replaced[name])
        text = self._value(label, node)
        try:
            number = None if self.draws else self._number(node).value
        except UsageError:  # not a number
            number = None
        if name is not None and number is not None:
            self.sizes[name] = number
        return Argument(name, text, self.draws, number)

    def _value(self, label: str, node: ast.expr) -> str:
        """The value's expression; draws are collected under names that begin with the label."""
        if isinstance(node, ast.Call) or _is_computed(node):
            self.draws[label] = draw = self._draw(node)
            return draw.form_text(label)
        if isinstance(node, ast.List | ast.Tuple):
            items = [self._value(f"{label}_{index}", item) for index, item in enumerate(node.elts)]
            inner = ", ".join(items)
            return f"[{inner}]" if isinstance(node, ast.List) else f"({inner}{',' if len(items) == 1 else ''})"
        if isinstance(node, ast.Dict):
            return self._dict(label, node)
        if isinstance(node, ast.Constant) and isinstance(node.value, str | bool | None):
            return repr(node.value)
        return repr(self._number(node).value)

    def _dict(self, label: str, node: ast.Dict) -> str:
        items = list[str]()
        for key, value in zip(node.keys, node.values, strict=True):
            if not (isinstance(key, ast.Constant) and isinstance(key.value, str | int)):
                raise _bad("Keys of a dict must be texts or integers.")
            suffix = str(key.value) if str(key.value).isidentifier() else str(len(items))
            items.append(f"{key.value!r}: {self._value(f'{label}_{suffix}', value)}")
        return "{" + ", ".join(items) + "}"

    def _draw(self, node: ast.expr, form: Form | None = None) -> Draw:
        """The draw of a maker, with the numbers that it is computed with. form: if it is not the maker's own. Raises
        UsageError BAD_INPUTS.
        """
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return makers.computed(self._draw(node.operand, form), "*", Number(-1, "(-1)"))
        if isinstance(node, ast.BinOp):
            is_left = _is_drawn(node.left)
            drawn, other = (node.left, node.right) if is_left else (node.right, node.left)
            sign = _SIGNS.get(type(node.op), "")
            if _is_drawn(other) or sign not in (*"+-*", "/" if is_left else ""):
                raise _bad(f"{ast.unparse(node)[:60]!r} cannot be computed here.", _COMPUTED)
            return makers.computed(self._draw(drawn, form), sign, self._number(other), is_left)
        if isinstance(node, ast.Call):
            return self._made(node, form)
        raise _bad(f"{ast.unparse(node)[:60]!r} cannot be computed here.", _COMPUTED)

    def _made(self, node: ast.Call, form: Form | None) -> Draw:
        name, own = self._maker(node.func)
        if name == "list" and len(node.args) == 1 and _is_drawn(node.args[0]) and not node.keywords:
            return self._draw(node.args[0], "list")
        maker = makers.MAKERS.get(name)
        if maker is None:
            near = difflib.get_close_matches(name, makers.MAKERS, n=1)
            hint = f"Did you mean '{near[0]}'? " if near else ""
            raise _bad(f"There is no maker {name[:40]!r}.", f"{hint}Known: {', '.join(makers.MAKERS)}, list. {_OWN}")
        words = {keyword.arg or "**": keyword.value for keyword in node.keywords}
        args = node.args
        if name == "text" and len(args) == 2:  # its alphabet is the only text among the arguments of makers
            args, words["alphabet"] = args[:1], args[1]
        request = makers.Request(name, form or own, [self._parameter(arg) for arg in args], self._options(words))
        draw = maker(request)
        if math.prod(max(size.value, 0) for size in draw.shape) > MAX_ELEMENTS:
            raise _bad(f"{name} makes more than 2**34 elements.")
        return draw

    def _maker(self, node: ast.expr) -> tuple[str, Form]:
        """Name and form of a maker: randn, torch.randn, np.random.randn."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            option = "A type or device is an option: randn(4096, dtype=float16, device=cpu)."
            raise _bad("Only makers such as randn(...) can be called.", f"{option} {_OWN}")
        parts.append(node.id)
        if len(parts) == 1:
            return parts[0], self.form
        if parts[-1] not in LIBRARIES or (len(parts) > 2 and parts[1:-1] != ["random"]):
            raise _bad(f"{'.'.join(reversed(parts))[:60]!r} is not a maker.", f"Known: {', '.join(makers.MAKERS)}.")
        return parts[0], LIBRARIES[parts[-1]]

    def _parameter(self, node: ast.expr) -> Number | list[Number]:
        if isinstance(node, ast.List | ast.Tuple):
            return [self._number(item) for item in node.elts]
        return self._number(node)

    def _options(self, words: Mapping[str, ast.expr]) -> dict[str, Any]:
        """Keyword arguments of a maker: numbers, shapes, and the names of types and devices."""
        options: dict[str, Any] = {}
        for name, node in words.items():
            if name in ("dtype", "device"):
                options[name] = _word(node)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str if name == "alphabet" else bool):
                options[name] = node.value
            else:
                options[name] = self._parameter(node)
        return options

    def _number(self, node: ast.expr) -> Number:
        """A number, with its text over earlier names. Raises UsageError BAD_INPUTS."""
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
            return Number(node.value, repr(node.value))
        if isinstance(node, ast.Name) and node.id in self.sizes:
            return Number(self.sizes[node.id], f"self.{node.id}")
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            inner = self._number(node.operand)
            return Number(-inner.value, f"(-{inner.text})")
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            return _combined(type(node.op), self._number(node.left), self._number(node.right))
        if isinstance(node, ast.Name):
            known = f"Known names: {', '.join(self.sizes)}." if self.sizes else f"Give it first: {node.id}=1024, …"
            known = f"A maker is called: {node.id}(…)." if node.id in makers.MAKERS else known
            raise _bad(f"The name {node.id[:40]!r} has no value here.", known)
        raise _bad(f"{ast.unparse(node)[:60]!r} is not a number.", f"Write arguments as in a call: {EXAMPLE}. {_OWN}")


def _is_drawn(node: ast.expr) -> bool:
    return any(isinstance(part, ast.Call) for part in ast.walk(node))


def _is_computed(node: ast.expr) -> bool:
    """Return True if it is an expression of a maker, such as `2 * rand(4096) - 1`."""
    return isinstance(node, ast.BinOp | ast.UnaryOp | ast.Compare | ast.Subscript | ast.Attribute) and _is_drawn(node)


def _combined(kind: type[ast.operator], left: Number, right: Number) -> Number:
    if kind is ast.Pow and not (0 <= right.value <= 64 and abs(left.value) <= 2**20):
        raise _bad("A power is too large.")
    try:
        value = _OPERATORS[kind](left.value, right.value)
    except (ArithmeticError, ValueError) as error:
        raise _bad(f"A number cannot be computed: {error}.") from None
    if isinstance(value, complex) or abs(value) > 2**63:
        raise _bad("A number is too large.")
    return Number(value, f"({left.text} {_SIGNS[kind]} {right.text})")


def _word(node: ast.expr) -> str:
    """The name of a type or device: float16, "float16", torch.float16."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value.removeprefix("torch.")
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in LIBRARIES:
        return node.attr
    raise _bad(f"{ast.unparse(node)[:60]!r} is not a type or device.", "Such as dtype=float16, device=cpu.")


def sizes(arguments: Sequence[Argument]) -> dict[str, int | float]:
    """Numbers that draws refer to by name, with their values."""
    values = {argument.name: argument.number for argument in arguments if argument.name and argument.number is not None}
    sources = " ".join(draw.source for argument in arguments for draw in argument.draws.values())
    return {name: value for name, value in values.items() if re.search(rf"\bself\.{name}\b", sources)}
