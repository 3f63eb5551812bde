"""Lazy Evaluation Skip.

What happens: A tensor computes itself when it is read.
Why it lies: The work is behind the end of the call.
What we do: Exact type of the output; stored inside the parent's interval.
Limits: Names of types can be forged; then the own clock disagrees with the parent's.

Attacks: A tensor that computes itself when it is read.
"""

from aisp_mcp.judge.attacks.base import Issue, Undefended, attack, honest
from aisp_mcp.judge.attacks.baselines import MATMUL_RELU, PARAMETER

ABOUT = Issue(id=34, kind="B", undefended=Undefended(85.8, "one process", "cpu"), executed_on=("cpu",))

CASES = (
    attack("lazy_subclass", MATMUL_RELU)("""
import torch

class Lazy(torch.Tensor):
    @classmethod
    def __torch_function__(cls, f, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            args = [torch.relu(a.x @ a.w) if isinstance(a, Lazy) else a for a in args]
            return f(*args, **(kwargs or {}))

def run(x, w):
    y = torch.Tensor._make_subclass(Lazy, torch.empty(256, 256))
    y.x, y.w = x, w
    return y
"""),
    attack("lazy_subclass_under_a_false_name", MATMUL_RELU)("""
import torch

class Lazy(torch.Tensor):
    @classmethod
    def __torch_function__(cls, f, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            args = [torch.relu(a.x @ a.w) if hasattr(a, "x") and f.__name__ == "copy_" else a for a in args]
            return f(*args, **(kwargs or {}))

Lazy.__module__, Lazy.__qualname__, Lazy.__name__ = "torch", "Tensor", "Tensor"

def run(x, w):
    y = torch.Tensor._make_subclass(Lazy, torch.empty(256, 256))
    y.x, y.w = x, w
    return y
"""),
    honest("subclass_by_contract", PARAMETER)("""
import torch

def run(x):
    y = torch.exp(x - x.amax(1, keepdim=True))
    return torch.nn.Parameter(y.div_(y.sum(1, keepdim=True)), requires_grad=False)
"""),
)
