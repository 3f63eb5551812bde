"""Launch header of a C++ or CUDA C++ candidate: the comment that declares the call of its exported function.

The file begins with a comment whose first line is its summary, and which ends with YAML:

    /* One pass over both vectors.

    launch:
      function: vector_add                # extern "C" int vector_add(...), 0 for success
      arguments: [a, b, out, a.numel]     # in order
      outputs: {out: {like: a}}           # made anew for each call, returned in this order
      scratch: {part: {shape: [a.shape[0], 2], dtype: float32}}
      flags: [-ffast-math]
    */

An argument is the name of an input, a static tensor, an output or scratch (a pointer), `stream` (the current
cudaStream_t), or a size (int64_t): integers, `a.numel`, `a.shape[0]`, `a.stride[0]`, and + - * // % of them. Tensors
must be contiguous unless the header mentions their strides. Nothing here runs the candidate.
"""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

LANGUAGES = {".cpp": "C++", ".cu": "CUDA C++"}
STREAM = "stream"
_COMMENT = re.compile(r"\s*/\*(.*?)\*/", re.DOTALL)
_KEYS = {"function", "arguments", "outputs", "scratch", "flags"}
_OPERATORS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "//", ast.Mod: "%"}
# No option that names a file or runs a program: the compiler sees only the candidate's text.
_FLAG = re.compile(
    r"-O[0-3]|-D\w+(=[\w.]+)?|-std=(c|gnu)\+\+\d\d|-ffast-math|-fopenmp|-funroll-loops|-fno-math-errno"
    r"|-mprefer-vector-width=\d+|--use_fast_math|-maxrregcount=\d+|--ftz=(true|false)|--fmad=(true|false)"
)


class HeaderError(ValueError):
    """The header is missing or invalid."""


@dataclass(frozen=True)
class Allocation:
    """A tensor made before a call. shape: expressions. like: the tensor whose shape, type or device it takes."""

    shape: tuple[str, ...] | None = None
    dtype: str | None = None
    like: str | None = None


@dataclass(frozen=True)
class Launch:
    """One exported function. arguments: in order, as written. strided: tensors that need not be contiguous."""

    summary: str
    function: str
    arguments: tuple[str, ...]
    outputs: dict[str, Allocation]
    scratch: dict[str, Allocation] = field(default_factory=dict)
    flags: tuple[str, ...] = ()

    @property
    def made(self) -> dict[str, Allocation]:
        """Tensors that the harness allocates, by name."""
        return {**self.outputs, **self.scratch}

    def inputs(self) -> list[str]:
        """Names of the tensors that come from the specification."""
        texts = [*self.arguments, *(text for allocation in self.made.values() for text in allocation.shape or ())]
        names = {name for text in texts if text != STREAM for name in _names(text)}
        names |= {allocation.like for allocation in self.made.values() if allocation.like}
        return sorted(names - self.made.keys())

    def strided(self) -> set[str]:
        """Names of the tensors whose strides are passed to the function."""
        return {name for text in self.arguments for name in re.findall(r"(\w+)\.stride\b", text)}


def summary(source: str) -> str:
    """First line of the leading comment, or nothing."""
    comment = _COMMENT.match(source)
    return comment[1].strip().partition("\n")[0].strip(" *") if comment else ""


def read(source: str, suffix: str) -> Launch:
    """The header of a file with that suffix. Raises HeaderError."""
    comment = _COMMENT.match(source)
    at = re.search(r"^launch:", comment[1], re.MULTILINE) if comment else None
    if comment is None or at is None:
        bindings = "; bindings of torch are compiled by a candidate in Python that loads them"
        is_bound = "PYBIND11_MODULE" in source or "TORCH_LIBRARY" in source
        raise HeaderError(f"the file does not begin with a comment that contains 'launch:'{bindings * is_bound}")
    import yaml  # not needed for listing benchmarks

    try:
        header = yaml.safe_load(comment[1][at.start() :])["launch"]
    except yaml.YAMLError as error:
        raise HeaderError(f"the launch header is not YAML: {str(error).splitlines()[0]}") from None
    launch = _launch(summary(source), header)
    if suffix == ".cu" and STREAM not in launch.arguments:
        raise HeaderError("a CUDA function takes the current stream: add 'stream' to the arguments")
    if suffix != ".cu" and STREAM in launch.arguments:
        raise HeaderError("there is no stream on a CPU")
    return launch


def _launch(words: str, header: Any) -> Launch:
    if not isinstance(header, Mapping) or not {"function", "arguments", "outputs"} <= header.keys() <= _KEYS:
        raise HeaderError(f"the launch header has function, arguments and outputs, and may have {sorted(_KEYS)[2:]}")
    if not isinstance(header["arguments"], list) or not isinstance(header["outputs"], Mapping) or not header["outputs"]:
        raise HeaderError("arguments is a list, outputs a mapping of at least one name")
    flags = tuple(map(str, header.get("flags") or ()))
    if bad := [flag for flag in flags if not _FLAG.fullmatch(flag)]:
        raise HeaderError(f"the flag {bad[0]} is not one that a header may set")
    launch = Launch(
        words,
        _identifier(header["function"]),
        tuple(map(str, header["arguments"])),
        {_identifier(name): _allocation(allocation) for name, allocation in header["outputs"].items()},
        {_identifier(name): _allocation(allocation) for name, allocation in (header.get("scratch") or {}).items()},
        flags,
    )
    for text in launch.arguments:
        if text != STREAM and not text.isidentifier():
            expression(text)
    launch.inputs()
    return launch


def _allocation(entry: Any) -> Allocation:
    if not isinstance(entry, Mapping) or not entry.keys() <= {"shape", "dtype", "like"}:
        raise HeaderError("an output has 'like', or 'shape' and 'dtype'")
    shape, dtype, like = entry.get("shape"), entry.get("dtype"), entry.get("like")
    if like is None and (shape is None or dtype is None):
        raise HeaderError("an output has 'like', or 'shape' and 'dtype'")
    sizes = None if shape is None else tuple(map(str, shape))
    for text in sizes or ():
        expression(text)
    return Allocation(sizes, _identifier(dtype) if dtype else None, _identifier(like) if like else None)


def _identifier(name: Any) -> str:
    if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name) or name.startswith("_"):
        raise HeaderError(f"{str(name)[:40]!r} is not a name")
    return name


def _names(text: str) -> set[str]:
    return {_identifier(node.id) for node in ast.walk(_parsed(text)) if isinstance(node, ast.Name)}


def _parsed(text: str) -> ast.expr:
    try:
        return ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise HeaderError(f"{text[:40]!r} is not a size") from None


def expression(text: str) -> str:
    """A size as Python over torch tensors, such as `a.shape[0] * a.numel()`. Raises HeaderError."""
    return _python(_parsed(text), text)


def _python(node: ast.expr, text: str) -> str:
    match node:
        case ast.Constant(value=int(value)):
            return str(int(value))
        case ast.Attribute(value=ast.Name(id=name), attr="numel"):
            return f"{_identifier(name)}.numel()"
        case ast.Subscript(value=ast.Attribute(value=ast.Name(id=name), attr="shape" | "stride" as what), slice=index):
            suffix = f".shape[{_index(index, text)}]" if what == "shape" else f".stride({_index(index, text)})"
            return _identifier(name) + suffix
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _OPERATORS:
            return f"({_python(left, text)} {_OPERATORS[type(operator)]} {_python(right, text)})"
    raise HeaderError(f"{text[:40]!r} is not a size")


def _index(node: ast.expr, text: str) -> int:
    match node:
        case ast.Constant(value=int(value)):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(value))):
            return -value
    raise HeaderError(f"{text[:40]!r} is not a size")
