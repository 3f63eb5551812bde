"""Fused attention of a trace: text of its targets, and the same formulas in plain operations for the harness.

The fused operators run only on a GPU, and the backward pass needs the output and row statistics of a forward pass: both
are computed here from the drawn query, key and value, so that the timed call has consistent inputs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

FORWARD, BACKWARD = "_cudnn_attention_forward", "_cudnn_attention_backward"
_TEXT = '''"""{summary}"""

import torch

from aisp_mcp.profile.operators import attention
from aisp_mcp.bench import Benchmark, Needs


class {title}(Benchmark):
    needs = Needs(gpus=1)

    def inputs(self, rng):
        drawn = {{
{inputs}        }}
{saved}        return drawn

    def run(self, {names}):
        return {call}{taken}

    def reference(self, {names}):
        return attention.{method}({given}, {how}){taken}
'''
_SAVED = """        out, statistics = attention.forward(drawn["{query}"], drawn["{key}"], drawn["{value}"], {how})
        drawn["{out}"] = attention.laid_out(out, {out_stride}, drawn["{query}"].dtype)
        drawn["{logsumexp}"] = statistics
"""


def text(operator: str, parts: Mapping[str, str], names: Mapping[str, str], facts: Mapping[str, Any]) -> str:
    """The target's file.

    said: summary, title, inputs (lines) and call. names: input by formal argument. facts: values of is_causal and
    scale, with logsumexp (the forward pass returns it) and out_stride (of the backward pass).
    """
    how = f"causal={facts['causal']}, scale={facts['scale']}"
    forward = operator == FORWARD
    formal = ("query", "key", "value") if forward else ("grad_out", "query", "key", "value", "out", "logsumexp")
    saved = "" if forward else _SAVED.format(**names, how=how, out_stride=facts["out_stride"])
    taken = ("[:2]" if facts["logsumexp"] else "[:1]") if forward else ""
    return _TEXT.format(
        **parts,
        names=", ".join(names.values()),
        saved=saved,
        taken=taken,
        method="forward" if forward else "backward",
        given=", ".join(names[name] for name in formal),
        how=how,
    )


def forward(query: Any, key: Any, value: Any, causal: bool, scale: float | None) -> tuple[Any, Any]:
    """(output, logarithm of each row's sum of exponentials), in float32 at least.

    query: (..., queries, width); key, value: (..., keys, width). The second result keeps a last dimension of 1.
    """
    scores = _scores(query, key, causal, scale)
    statistics = scores.logsumexp(-1, keepdim=True)
    return (scores - statistics).exp() @ _wide(value), statistics


def backward(
    grad: Any, query: Any, key: Any, value: Any, out: Any, statistics: Any, causal: bool, scale: float | None
) -> tuple[Any, Any, Any]:
    """Gradients of query, key and value, of the shapes of these, from a forward pass's results."""
    factor = _factor(query, scale)
    weights = (_scores(query, key, causal, scale) - statistics).exp()
    grad, out = _wide(grad), _wide(out)
    inner = weights * (grad @ _wide(value).transpose(-2, -1) - (grad * out).sum(-1, keepdim=True))
    return (
        inner @ _wide(key) * factor,
        inner.transpose(-2, -1) @ _wide(query) * factor,
        weights.transpose(-2, -1) @ grad,
    )


def laid_out(tensor: Any, stride: list[int], dtype: Any) -> Any:
    """A copy of these values with these strides."""
    import torch

    return torch.empty_strided(tensor.shape, stride, dtype=dtype, device=tensor.device).copy_(tensor)


def _scores(query: Any, key: Any, causal: bool, scale: float | None) -> Any:
    import torch

    scores = _wide(query) @ _wide(key).transpose(-2, -1) * _factor(query, scale)
    if not causal:
        return scores
    hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
    return scores.masked_fill(hidden, -math.inf)


def _factor(query: Any, scale: float | None) -> float:
    return 1 / math.sqrt(query.shape[-1]) if scale is None else scale


def _wide(tensor: Any) -> Any:
    return tensor.float() if tensor.element_size() < 4 else tensor
