"""Recorded operators as specifications. The part that knows torch's schemas runs in a child process.

    python -m aisp_mcp.profile.operators.aten signatures.json

Every signature is matched with an overload of the operator and called once without values (on the meta device), so that
the written target can be called. For operators that compute nothing, or that cannot be called again from the record,
the reason is reported.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

from aisp_mcp.profile.operators import attention
from aisp_mcp.suites.adapters.base import identifier

MARK = "aisp-operators "
DTYPES = {
    "float": "float32",
    "double": "float64",
    "c10::Half": "float16",
    "c10::BFloat16": "bfloat16",
    "c10::Float8_e4m3fn": "float8_e4m3fn",
    "c10::Float8_e5m2": "float8_e5m2",
    "long int": "int64",
    "long": "int64",
    "int": "int32",
    "short": "int16",
    "short int": "int16",
    "signed char": "int8",
    "unsigned char": "uint8",
    "bool": "bool",
}
_FLOATING = ("float", "bfloat")
_GPU_ONLY = ("cudnn", "flash", "efficient", "fused_adam")
_ATTENTION = (attention.FORWARD, attention.BACKWARD)
# Operators whose last integer tensor holds indices into the dimension that their second argument names, of their first.
_ALONG = ("gather", "index_select", "index_add", "index_copy", "index_fill", "scatter", "scatter_add", "scatter_reduce")
_TEXT = '''"""{summary}"""

import torch

from aisp_mcp.bench import Benchmark, Needs


class {title}(Benchmark):
    needs = Needs(gpus={gpus})
    in_place = {in_place}

    def inputs(self, rng):
        return {{
{inputs}        }}

    def run(self, {names}):
        return {call}
'''
_MIXED = "tuple(one for one in {call} if isinstance(one, torch.Tensor) and one.is_floating_point())"


class NoTarget(Exception):
    """The reason for which an operator is not a target."""


def main() -> int:
    """Print, after MARK, one object per signature: the file's text and name, or the reason why there is none."""
    signatures = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    print(f"\n{MARK}{json.dumps([describe(signature) for signature in signatures])}", flush=True)
    return 0


def describe(signature: dict[str, Any]) -> dict[str, Any]:
    """{"text": …, "summary": …} or {"reason": …}."""
    try:
        return _target(signature)
    except NoTarget as error:
        return {"reason": str(error)}


def _target(signature: dict[str, Any]) -> dict[str, Any]:
    space, _, operator = signature["name"].partition("::")
    if space != "aten" or not operator.isidentifier():
        raise NoTarget("not an operator of torch, but a node of autograd or a range")
    if any(kind == "TensorList" for kind in signature["types"]):
        raise NoTarget("takes lists of tensors, whose shapes are not recorded")
    tensors = {f"input_{at}": at for at, kind in enumerate(signature["types"]) if kind in DTYPES}
    if not tensors:
        raise NoTarget("takes no tensors")
    overload = _overload(operator, signature)
    _reject(overload)
    arguments, names = _arguments(overload._schema, signature)
    lines = "".join(f"            {name!r}: {draw(signature, at)},\n" for name, at in tensors.items())
    title = "".join(word.capitalize() for word in f"aten_{identifier(operator)}".split("_"))
    summary = f"{signature['name']} as recorded {signature['calls']} times: " + ", ".join(
        f"{DTYPES[signature['types'][at]]} {list(signature['dims'][at])}" for at in tensors.values()
    )
    parts: dict[str, Any] = {"summary": summary[:118], "title": title, "inputs": lines}
    parts["call"] = f"torch.ops.aten.{operator}({', '.join(arguments)})"
    if operator in _ATTENTION:
        return {"text": _attention(operator, parts, overload._schema, arguments, signature)}
    output = _call(overload, arguments, signature)
    in_place = [
        names[at] for at, argument in enumerate(overload._schema.arguments) if _written(argument) and at in names
    ]
    if not _floating(output) or (_aliases(overload._schema) and not in_place):
        raise NoTarget("computes nothing: its output is a view, or no tensor")
    gpus = int(any(word in operator for word in _GPU_ONLY))
    if isinstance(output, tuple | list) and len(_floating(output)) < len(output):
        parts["call"] = _MIXED.format(call=parts["call"])
    text = _TEXT.format(**parts, gpus=gpus, in_place=tuple(in_place), names=", ".join(tensors))
    return {"text": text if gpus else text.replace("    needs = Needs(gpus=0)\n", "").replace(", Needs", "")}


def _overload(operator: str, signature: dict[str, Any]) -> Any:
    """The overload that takes arguments of these kinds. Raises NoTarget."""
    import torch

    packet = getattr(torch.ops.aten, operator, None)
    for name in packet.overloads() if packet else ():
        overload = getattr(packet, name)
        formal = overload._schema.arguments
        if len(formal) == len(signature["types"]) and all(
            _fits(str(argument.type), kind)
            or (operator in _ATTENTION and kind == "")  # undefined tensors, such as a bias
            for argument, kind in zip(formal, signature["types"], strict=True)
        ):
            return overload
    raise NoTarget("no overload of this torch takes the recorded arguments")


def _attention(
    operator: str, parts: dict[str, Any], schema: Any, arguments: list[str], signature: dict[str, Any]
) -> str:
    """Text of a fused attention's target. Raises NoTarget for dropout, a bias and ragged sequences."""
    given = {formal.name: argument for formal, argument in zip(schema.arguments, arguments, strict=True)}
    given = {name: text.partition("=")[2] or text for name, text in given.items()}
    if float(given["dropout_p"]) != 0:
        raise NoTarget("draws random numbers")
    names = {name: text for name, text in given.items() if text.startswith("input_")}
    if names.keys() & {"attn_bias", "cum_seq_q", "cum_seq_k"}:
        raise NoTarget("attention with a bias or ragged sequences")
    positions = {formal.name: at for at, formal in enumerate(schema.arguments)}
    facts: dict[str, Any] = {"causal": given["is_causal"], "scale": given["scale"]}
    facts["logsumexp"] = given.get("compute_log_sumexp") == "True"
    if operator == attention.BACKWARD:
        at = positions["out"]
        facts["out_stride"] = _stride(signature, at) or _contiguous(signature["dims"][at])
    return attention.text(operator, parts, names, facts)


def _contiguous(dims: list[int]) -> list[int]:
    return [math.prod(dims[at + 1 :]) for at in range(len(dims))]


def _fits(formal: str, kind: str) -> bool:
    if kind in DTYPES:
        return "Tensor" in formal and "List" not in formal
    if kind == "ScalarList":
        return "List" in formal
    if kind == "Scalar":
        return "Tensor" not in formal and "List" not in formal
    return kind == "" and ("Optional" in formal or "Generator" in formal or formal == "str")


def _reject(overload: Any) -> None:
    """Raise NoTarget for operators whose output cannot be compared."""
    import torch

    if torch.Tag.nondeterministic_seeded in overload.tags and "attention" not in overload.name():
        raise NoTarget("draws random numbers")
    name = overload.name().partition("::")[2]
    if name.startswith(("empty", "new_empty", "_local_scalar", "item", "resize", "set_", "record_stream")):
        raise NoTarget("computes nothing: allocates, or reads one value on the host")


def _arguments(schema: Any, signature: dict[str, Any]) -> tuple[list[str], dict[int, str]]:
    """Source of the call's arguments, and names of its tensors by position. Raises NoTarget."""
    texts, names = [], {}
    for at, formal in enumerate(schema.arguments):
        kind, concrete = signature["types"][at], signature["concrete"][at]
        if kind in DTYPES:
            names[at] = text = f"input_{at}"
        elif str(formal.type) == "str" and formal.kwarg_only and formal.has_default_value():
            continue  # texts, such as gelu's approximate, are not recorded: use the default
        else:
            text = value(str(formal.type), kind, concrete)
        texts.append(f"{formal.name}={text}" if formal.kwarg_only else text)
    return texts, names


def value(formal: str, kind: str, concrete: str) -> str:
    """A recorded value as Python source. Raises NoTarget."""
    if kind == "" or concrete == "None":
        return "None"
    if "ScalarType" in formal or (formal in ("int", "Optional[int]") and concrete == ""):
        return "None"
    try:
        parsed = json.loads(concrete.replace("True", "true").replace("False", "false").rstrip("."))
    except ValueError:
        raise NoTarget(f"an argument was not recorded as a value: {concrete[:40]!r}") from None
    return repr(parsed)


def _call(overload: Any, arguments: list[str], signature: dict[str, Any]) -> Any:
    """The operator's output on the meta device. Raises NoTarget."""
    import torch

    given = {}
    for at, kind in enumerate(signature["types"]):
        if kind in DTYPES:
            tensor = torch.empty(signature["dims"][at], dtype=getattr(torch, DTYPES[kind]), device="meta")
            stride = _stride(signature, at)
            given[f"input_{at}"] = (
                tensor
                if stride is None
                else torch.empty_strided(tensor.shape, stride, dtype=tensor.dtype, device="meta")
            )
    try:
        return eval(f"call({', '.join(arguments)})", {"call": overload, "torch": torch}, given)
    except Exception as error:  # any error of a kernel about arguments that it does not accept
        raise NoTarget(f"cannot be called again: {type(error).__name__}: {str(error)[:80]}") from None


def _floating(output: Any) -> list[Any]:
    """Tensors that can be compared; integers in a mixed output are seeds and sizes, in other outputs they
    are results.
    """
    import torch

    items = [
        tensor
        for tensor in (output if isinstance(output, tuple | list) else [output])
        if isinstance(tensor, torch.Tensor)
    ]
    return [item for item in items if item.is_floating_point()] or (
        items if not isinstance(output, tuple | list) else []
    )


def _written(argument: Any) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write


def _aliases(schema: Any) -> bool:
    return any(output.alias_info is not None for output in schema.returns)


def _stride(signature: dict[str, Any], at: int) -> list[int] | None:
    """Recorded strides; None if they were not recorded, and the tensor is assumed contiguous."""
    strides = signature["strides"]
    return None if strides is None or len(strides[at]) != len(signature["dims"][at]) else list(strides[at])


def draw(signature: dict[str, Any], at: int) -> str:
    """The harness's draw of one input: its recorded shape, strides and type. Values are not recorded."""
    dims, dtype = list(signature["dims"][at]), DTYPES[signature["types"][at]]
    stride = _stride(signature, at)
    order = sorted(range(len(dims)), key=lambda axis: (-stride[axis], axis)) if stride else list(range(len(dims)))
    sizes = [dims[axis] for axis in order]
    if stride is not None and not _dense(sizes, [stride[axis] for axis in order]):
        length = 1 + sum((size - 1) * step for size, step in zip(dims, stride, strict=True))
        return f"{_values(signature, dtype, [length])}.as_strided({dims}, {stride})"
    text = _values(signature, dtype, sizes)
    if at == 4 and "batch_norm" in signature["name"] and "backward" not in signature["name"]:
        text += ".abs()"  # the running variance
    if order != list(range(len(dims))):
        text += f".permute({', '.join(str(order.index(axis)) for axis in range(len(dims)))})"
    return text


def _dense(sizes: list[int], strides: list[int]) -> bool:
    expected = 1
    for size, step in zip(reversed(sizes), reversed(strides), strict=True):
        if size != 1 and step != expected:
            return False
        expected *= size
    return True


def _values(signature: dict[str, Any], dtype: str, sizes: list[int]) -> str:
    shape = "".join(f", {size}" for size in sizes)
    if dtype == "bool":
        return f"rng.bernoulli(0.5{shape})"
    if dtype.startswith(_FLOATING):
        kind = "" if dtype == "float32" else f', dtype="{dtype}"'
        return f"rng.randn({(shape + kind).removeprefix(', ')})"
    limit = _indexed(signature) or _least_size(signature)
    limit = min(limit, 127) if dtype in ("int8", "uint8") else limit
    kind = "" if dtype == "int64" else f', dtype="{dtype}"'
    return f"rng.randint(0, {limit}{shape}{kind})" if math.prod(sizes) else f"rng.randint(0, 2{shape}{kind})"


def _indexed(signature: dict[str, Any]) -> int | None:
    """Size of what the operator's integers are indices of; None if it is not known. A lookup in a table of 32,000 rows
    costs more than one in its first eight, which stay in the caches.
    """
    dims: list[list[int]] = signature["dims"]
    operator, concrete = signature["name"].removeprefix("aten::").rstrip("_"), signature["concrete"]
    try:
        match operator:
            case "embedding" | "embedding_bag":
                return dims[0][0]
            case "embedding_dense_backward":
                return int(concrete[2])
            case "take":
                return math.prod(dims[0])
        if operator.startswith(("nll_loss", "cross_entropy_loss")) and not operator.endswith("backward"):
            return dims[0][min(1, len(dims[0]) - 1)]
        return dims[0][int(concrete[1])] if operator in _ALONG else None
    except (ValueError, IndexError):  # not recorded
        return None


def _least_size(signature: dict[str, Any]) -> int:
    """Integers may be indices; below every size of all inputs, they are valid."""
    sizes = [
        size
        for dims, kind in zip(signature["dims"], signature["types"], strict=True)
        if kind in DTYPES
        for size in dims
    ]
    return max(2, min(sizes, default=2))


if __name__ == "__main__":
    sys.exit(main())
