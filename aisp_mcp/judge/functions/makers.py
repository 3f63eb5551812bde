"""Makers of inputs: Python source that draws `randn(4096, 64)` and the others with the harness's rng.

Random makers draw new values for every call, with the secret statistics of bench.Rng. zeros, ones, full, arange, eye
and linspace have the same values in every call, which a verdict discloses.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from aisp_mcp.errors import UsageError

Form = Literal["tensor", "array", "list", "number", "value"]
FLOATS = ("float32", "float64", "float16", "bfloat16")
INTEGERS = ("int64", "int32", "int16", "int8", "uint8")
DTYPES = (*FLOATS, *INTEGERS, "bool", "complex64", "complex128")
_OTHER_NAMES = {"float": "float32", "double": "float64", "half": "float16", "int": "int64", "long": "int64"}
DEVICES = ("cpu", "cuda")


@dataclass(frozen=True)
class Number:
    """A number and its source text in a specification."""

    value: int | float
    text: str


@dataclass(frozen=True)
class Request:
    """A call of a maker as it was parsed."""

    name: str
    form: Form
    args: list[Number | list[Number]]
    options: dict[str, Any]


@dataclass(frozen=True)
class Draw:
    """One drawn value. source: its draw in terms of `rng`, `torch` and `self`. device: cpu, cuda or empty.

    fixed: it has the same values in every call. in_place: the function may change it.
    is_boolean: of integers, that they are booleans.
    """

    source: str
    form: Form
    shape: tuple[Number, ...]
    integer: bool = False
    fixed: bool = False
    device: str = ""
    in_place: bool = False
    is_boolean: bool = False

    def form_text(self, label: str) -> str:
        """The expression that converts the harness's tensor into the function's argument."""
        if self.form == "number":
            return f"{'int' if self.integer else 'float'}({label})"
        calls = {"tensor": label, "array": f"as_array({label})", "list": f"as_list({label})"}
        return calls.get(self.form, f"as_value({label})")


def computed(draw: Draw, sign: str, number: Number, is_left: bool = True) -> Draw:
    """The draw with a number on its right, or on its left: `rand(4096) * 2`, `1 - rand(4096)`. sign: one of + - * /.

    As in numpy, integers and booleans become floats of 64 bits by a float or a division; a tensor those of 32 bits.
    Raises UsageError BAD_INPUTS.
    """
    if draw.form == "value":
        raise UsageError("BAD_INPUTS", "Only numbers can be computed with.", "Such as 2 * rand(4096) - 1.")
    if sign == "/" and number.value == 0:
        raise UsageError("BAD_INPUTS", "An input cannot be divided by 0.", "Such as rand(4096) / 2.")
    is_float = sign == "/" or isinstance(number.value, float)
    source = f"({draw.source})"
    if draw.integer and is_float and draw.form != "tensor":
        source += ".double()"
    elif draw.is_boolean:
        source += ".long()"
    text = f"{source} {sign} {number.text}" if is_left else f"{number.text} {sign} {source}"
    return replace(draw, source=text, integer=draw.integer and not is_float, is_boolean=False)


def _bad(request: Request, message: str, hint: str | None = None) -> UsageError:
    return UsageError("BAD_INPUTS", f"{request.name}: {message}", hint or f"Such as {_USES[request.name]}.")


class _Call:
    """Arguments of one maker, taken one after another. Raises UsageError BAD_INPUTS."""

    def __init__(self, request: Request) -> None:
        self.request, self.args, self.options = request, list(request.args), dict(request.options)

    def number(self, name: str, default: float | None = None) -> Number:
        """The next positional number, or the option of that name."""
        value = self.options.pop(name, None)
        if value is None and self.args and isinstance(self.args[0], Number):
            value = self.args.pop(0)
        if value is None and default is not None:
            return Number(default, repr(default))
        if not isinstance(value, Number):
            raise _bad(self.request, f"the argument {name} is missing.")
        return value

    def default(self, value: int) -> int | None:
        """The value if the shape is given by its name, as in `uniform(size=100)`: the first numbers are no shape."""
        return value if {"size", "shape"} & self.options.keys() else None

    def option(self, name: str) -> str:
        """`, name=value` for an option that is a number, or nothing."""
        value = self.options.pop(name, None)
        return f", {name}={value.text}" if isinstance(value, Number) else ""

    def shape(self) -> list[Number]:
        """All remaining positional numbers, one list of them, or the options size or shape."""
        given = self.options.pop("size", self.options.pop("shape", None))
        rest = self.args if given is None else [given]
        self.args = []
        if len(rest) == 1 and isinstance(rest[0], list):
            rest = list(rest[0])
        sizes = [size for size in rest if isinstance(size, Number)]
        if len(sizes) < len(rest) or any(not isinstance(size.value, int) or size.value < 1 for size in sizes):
            raise _bad(self.request, "a shape consists of integers from 1 on.")
        return sizes

    def dtype(self, default: str) -> str:
        name = _OTHER_NAMES.get(self.options.get("dtype", default), self.options.get("dtype", default))
        self.options.pop("dtype", None)
        if name not in DTYPES:
            raise _bad(self.request, f"there is no type {str(name)[:30]!r}.", f"Known: {', '.join(DTYPES)}.")
        if name == "bfloat16" and self.request.form == "array":
            raise _bad(self.request, "numpy has no bfloat16.", "Use torch.randn, or another type.")
        return str(name)

    def end(self) -> None:
        """Refuse what is left."""
        if self.options or self.args:
            extra = f"argument {str(next(iter(self.options)))[:30]!r}" if self.options else "further number"
            raise _bad(self.request, f"unexpected {extra}.")

    def draw(self, source: str, shape: list[Number], integer: bool = False, fixed: bool = False) -> Draw:
        """The finished draw. A random number without a shape is a plain number for the function."""
        device = str(self.options.pop("device", ""))
        if device.partition(":")[0] not in ("", *DEVICES):
            raise _bad(self.request, f"there is no device {device[:30]!r}.", "device=cpu or device=cuda.")
        in_place = self.options.pop("in_place", False) is True
        self.end()
        form: Form = self.request.form if shape else "number"
        return Draw(source, form, tuple(shape), integer, fixed, device.partition(":")[0], in_place)


def _joined(*parts: str | Number) -> str:
    return ", ".join(part if isinstance(part, str) else part.text for part in parts)


def _shape_text(shape: list[Number]) -> str:
    """The shape as arguments; for a plain number, one value is drawn."""
    return _joined(*shape) if shape else "1"


def _dtype_text(name: str, default: str) -> str:
    return "" if name == default else f', dtype="{name}"'


def _float(call: _Call) -> str:
    return call.dtype("float64" if call.request.form in ("array", "list") else "float32")


def _randn(request: Request) -> Draw:
    call = _Call(request)
    dtype, ranges = _float(call), call.option("scale") + call.option("shift")
    shape = call.shape()
    return call.draw(f"rng.randn({_shape_text(shape)}{_dtype_text(dtype, 'float32')}{ranges})", shape)


def _normal(request: Request) -> Draw:
    call = _Call(request)
    mean, deviation = call.number("mean", call.default(0)), call.number("std", call.default(1))
    dtype, shape = _float(call), call.shape()
    drawn = f"rng.randn({_shape_text(shape)}{_dtype_text(dtype, 'float32')})"
    return call.draw(f"{drawn} * {deviation.text} + {mean.text}", shape)


def _rand(request: Request) -> Draw:
    call = _Call(request)
    dtype, shape = _float(call), call.shape()
    return call.draw(_uniform_text(shape, dtype, 0.5, 0.5), shape)


def _uniform(request: Request) -> Draw:
    call = _Call(request)
    low, high = call.number("low", call.default(0)), call.number("high", call.default(1))
    if not low.value < high.value:
        raise _bad(request, "low must be below high.")
    dtype, shape = _float(call), call.shape()
    half, middle = (high.value - low.value) / 2, (high.value + low.value) / 2
    return call.draw(_uniform_text(shape, dtype, half, middle), shape)


def _uniform_text(shape: list[Number], dtype: str, half: float, middle: float) -> str:
    return f"rng.rand({_shape_text(shape)}{_dtype_text(dtype, 'float32')}) * {half!r} + {middle!r}"


def _randint(request: Request) -> Draw:
    call = _Call(request)
    low = call.number("low", 0)
    if "high" not in call.options and not (call.args and isinstance(call.args[0], Number)):
        low, high = Number(0, "0"), low  # randint(high, shape)
    else:
        high = call.number("high")
    if not (isinstance(low.value, int) and isinstance(high.value, int) and low.value < high.value):
        raise _bad(request, "low and high must be integers, low below high.")
    dtype, shape = call.dtype("int64"), call.shape()
    source = f"rng.randint({_joined(low, high)}, {_shape_text(shape)}{_dtype_text(dtype, 'int64')}, any_values=True)"
    return call.draw(source, shape, integer=True)


def _permutation(request: Request) -> Draw:
    call = _Call(request)
    count = call.number("n")
    return call.draw(f"rng.permutation({count.text})", [count], integer=True)


def _bernoulli(request: Request) -> Draw:
    call = _Call(request)
    share = call.number("p")
    shape = call.shape()
    if not 0 <= share.value <= 1 or not shape:
        raise _bad(request, "a probability from 0 to 1 and a shape are needed.")
    draw = call.draw(f"rng.bernoulli({_joined(share, *shape)}, any_values=True)", shape, integer=True)
    return replace(draw, is_boolean=True)


def _filled(request: Request) -> Draw:
    call = _Call(request)
    content = "1" if request.name == "ones" else "0"
    if request.name == "full":
        value = call.options.pop("fill_value", None) or (call.args.pop() if len(call.args) == 2 else None)
        if not isinstance(value, Number):
            raise _bad(request, "a shape and a value are needed.")
        content = value.text
    dtype, shape = _float(call), call.shape()
    text = f"torch.full(({_joined(*shape)},), {content}, dtype=torch.{dtype}, device=rng.device)"
    return call.draw(text, shape, fixed=True)


def _counted(request: Request) -> Draw:
    """arange(n), arange(start, end, step), linspace(start, end, steps) and eye(n)."""
    call = _Call(request)
    names = ["start", "end", "steps"] if request.name == "linspace" else ["start"]
    if request.name == "arange":
        names += ["end", "step"][: max(len(call.args) - 1, 0)]
    numbers = [call.number(name) for name in names]
    dtype = call.dtype("int64") if request.name == "arange" else _float(call)
    shape = [numbers[-1]] * (2 if request.name == "eye" else 1)
    if request.name == "arange" and len(numbers) > 1:
        bounds = [number.value for number in numbers if isinstance(number.value, int)]
        if len(bounds) < len(numbers) or bounds[2:] == [0] or not range(*bounds):
            raise _bad(
                request, "start, end and step are integers, and some lie between.", "Such as arange(0, 4096, 2)."
            )
        shape = [Number(len(range(*bounds)), f"len(range({_joined(*numbers)}))")]
    text = f"torch.{request.name}({_joined(*numbers)}, dtype=torch.{dtype}, device=rng.device)"
    return call.draw(text, shape, integer=request.name == "arange", fixed=True)


def _value(request: Request) -> Draw:
    """A Python value: text(n, alphabet), words(n), lines(n), json_like(n), graph(n, edges), sparse(rows, columns)."""
    call = _Call(request)
    alphabet = call.options.pop("alphabet", None)
    numbers = [call.number("rows" if request.name == "sparse" else "n")]
    if not isinstance(numbers[0].value, int) or numbers[0].value < 1:
        raise _bad(request, "a size is an integer from 1 on.")
    if request.name == "sparse":
        numbers += [call.number("columns"), call.number("density", 0.01)]
    elif request.name == "graph" and (call.args or "edges" in call.options):
        numbers.append(call.number("edges"))
    words = [number.text for number in numbers] + ([repr(alphabet)] if alphabet else [])
    call.end()
    words += [] if request.name == "json_like" else ["kind=rng.kind"]
    source = f"made.near(made.{request.name}(rng.seed(), {', '.join(words)}), rng.way())"
    return Draw(source, "value", (numbers[0],))


VALUES = ("text", "words", "lines", "json_like", "graph", "sparse")
_USES = {
    "randn": "randn(4096, 64, dtype=float16)", "normal": "normal(0, 1, 4096)", "rand": "rand(4096)",
    "uniform": "uniform(-1, 1, 4096)", "randint": "randint(0, 100, 4096), or randint(1, 100) for one integer",
    "randperm": "randperm(4096)", "permutation": "permutation(4096)", "bernoulli": "bernoulli(0.5, 4096)",
    "zeros": "zeros(4096)", "ones": "ones(4096)", "full": "full((64, 64), 0.5)", "arange": "arange(4096)",
    "linspace": "linspace(0, 1, 100)", "eye": "eye(64)",
    "text": 'text(1000), or text(1000, "ACGT")', "words": "words(1000)", "lines": "lines(100)",
    "json_like": "json_like(1000)", "graph": "graph(100, 400)", "sparse": "sparse(1000, 1000, 0.01)",
}  # fmt: skip
MAKERS: dict[str, Callable[[Request], Draw]] = {
    "randn": _randn, "normal": _normal, "rand": _rand, "random": _rand, "uniform": _uniform, "randint": _randint,
    "randperm": _permutation, "permutation": _permutation, "bernoulli": _bernoulli, "zeros": _filled, "ones": _filled,
    "full": _filled, "arange": _counted, "linspace": _counted, "eye": _counted,
    **dict.fromkeys(VALUES, _value),
}  # fmt: skip
