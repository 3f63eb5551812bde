"""Candidates whose verdict is known, made of a problem's own reference: two honest ones, and four that are wrong."""

from __future__ import annotations

import json

HONEST, WRONG = "honest", "wrong"
# Names and what is known of them. double: the same in float64; it must not be accused for being more exact.
AUDITORS = {
    "identical": HONEST,
    "double": HONEST,
    "unfinished": WRONG,
    "rounded": WRONG,
    "stale": WRONG,
    "ignoring": WRONG,
}
HELPERS = '''

import copy

import torch

_first = {}


def _each(value, change):
    """The value with all of its tensors changed."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, dict):
        return {key: _each(item, change) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return type(value)(_each(item, change) for item in value)
    return value


def _typed(value, other):
    """The value with the types of another one's tensors."""
    if isinstance(value, torch.Tensor):
        return value.to(other.dtype)
    if isinstance(value, dict):
        return {key: _typed(item, other[key]) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return type(value)(map(_typed, value, other))
    return value


def _unfinished(tensor):
    """The last eighth of the elements is not computed."""
    flat = tensor.clone().reshape(-1)
    flat[-max(1, flat.numel() // 8):] = 0
    return flat.reshape(tensor.shape)


def _rounded(tensor):
    """Half of the bits; of integers the lowest one is lost."""
    if tensor.dtype == torch.bool:
        return tensor
    if not tensor.is_floating_point():
        return tensor // 2 * 2
    narrow = torch.bfloat16 if tensor.dtype in (torch.float32, torch.float64) else torch.float8_e4m3fn
    return tensor.to(narrow).to(tensor.dtype)


def _same(one, other):
    """Both are equal within a tenth of a percent."""
    flat = [list(value.values()) if isinstance(value, dict) else value for value in (one, other)]
    pairs = zip(*(value if isinstance(value, (tuple, list)) else [value] for value in flat))
    return all(torch.allclose(a.double(), b.double(), rtol=1e-3) for a, b in pairs)


def _kept(name, value):
    """The value of the first call."""
    return _first.setdefault(name, value)


def _ignoring(arguments, which=-1):
    """The last tensor with several elements is that of the first call, or another one."""
    at = [index for index, value in enumerate(arguments) if isinstance(value, torch.Tensor) and value.numel() > 1]
    changed = list(arguments)
    if at:
        changed[at[which]] = _kept("input", changed[at[which]].clone())
    return type(arguments)(changed)
'''
_OUTPUTS = {
    "unfinished": "return _each(out, _unfinished)",
    "rounded": "return _each(out, _rounded)",
    "stale": "return _kept('output', _each(out, torch.clone))",
}
_MODULE_DOUBLE = """

class ModelNew(Model):
    def forward(self, *args):
        wide = copy.deepcopy(self)
        wide.__class__ = Model
        right = super().forward(*_each(args, torch.clone))
        try:
            out = wide.double()(*_each(args, lambda each: each.double() if each.is_floating_point() else each))
        except RuntimeError:  # of a module that makes tensors of one precision itself
            return right
        return _typed(out, right)
"""
_MODULE_IGNORING = """

class ModelNew(Model):
    def forward(self, *args):
        right = super().forward(*args)
        for parameter in reversed(list(self.parameters())):  # the bias before a norm has no effect
            kept = parameter.data.clone()
            parameter.data.zero_()
            wrong = super().forward(*args)
            if not _same(right, wrong):
                return wrong
            parameter.data.copy_(kept)
        return super().forward(*_ignoring(args))
"""


def module(text: str, name: str) -> str:
    """A KernelBench candidate: the problem's text with a class ModelNew."""
    if name == "identical":  # not even one more Python call, which is a few percent of a short one
        return text + "\n\nclass ModelNew(Model):\n    pass\n"
    if name == "double":
        return text + HELPERS + _MODULE_DOUBLE
    if name == "ignoring":
        return text + HELPERS + _MODULE_IGNORING
    forward = f"    def forward(self, *args):\n        out = super().forward(*args)\n        {_OUTPUTS[name]}\n"
    return text + HELPERS + "\n\nclass ModelNew(Model):\n" + forward


def submission(text: str, name: str) -> str:
    """A GPU MODE candidate: the reference's text with custom_kernel."""
    if name == "identical":
        return text + "\n\ncustom_kernel = ref_kernel\n"
    return (
        text + HELPERS + _function("custom_kernel", "data", "ref_kernel(data)", "ref_kernel(_ignoring(data, 0))", name)
    )


def solution(definition: str, reference: str, name: str) -> str:
    """A FlashInfer-Trace solution: the definition's reference, with another entry point if it is changed."""
    text, entry = reference, "run"
    if name != "identical":
        text += HELPERS + _function("measured", "*args", "run(*args)", "run(*_ignoring(args))", name)
        entry = "measured"
    spec = {"languages": ["pytorch"], "entry_point": f"main.py::{entry}", "destination_passing_style": False}
    sources = [{"path": "main.py", "content": text}]
    return json.dumps({"name": name, "definition": definition, "spec": spec, "sources": sources})


def _function(function: str, parameter: str, call: str, ignoring: str, name: str) -> str:
    body = f"    out = {ignoring if name == 'ignoring' else call}\n    {_OUTPUTS.get(name, 'return out')}\n"
    if name == "ignoring" and parameter == "data":
        single = "    if isinstance(data, torch.Tensor):\n        return ref_kernel(_kept('input', data.clone()))\n"
        body = single + body
    return f"\n\ndef {function}({parameter}):\n{body}"
