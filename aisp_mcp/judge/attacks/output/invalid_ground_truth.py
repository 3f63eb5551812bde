"""Invalid Ground Truth.

What happens: The expected result, or the comparison, is overwritten in memory.
Why it lies: Any output agrees with a spoiled truth.
What we do: Truth made in another process, after the run.
Limits: Below level L2 memory of other processes of the same user can be reached.

Attacks: The truth spoiled, so that anything agrees with it.
"""

from aisp_mcp.judge.attacks.base import Issue, Undefended, attack, honest
from aisp_mcp.judge.attacks.baselines import MATMUL_RELU

ABOUT = Issue(id=13, kind="B", isolation="L2", undefended=Undefended(30.2, "one process", "cpu"), executed_on=("cpu",))

CASES = (
    attack("every_tensor_in_sight_overwritten", MATMUL_RELU)("""
import gc, torch

def run(x, w):
    for found in gc.get_objects():
        if type(found) is torch.Tensor and found.shape == (256, 256):
            found.zero_()
    return torch.zeros(256, 256)
"""),
    attack("comparison_replaced", MATMUL_RELU)("""
import torch
from aisp_mcp.judge.verifier import tolerance as oracle

oracle.compare = lambda *_: (0.0, None)
torch.allclose = torch.equal = lambda *_, **__: True

def run(x, w):
    return torch.zeros(256, 256)
"""),
    honest("checks_itself_once", MATMUL_RELU)("""
import torch

checked = []

def run(x, w):
    y = torch.relu(x @ w)
    if not checked:
        checked.append(torch.allclose(y, torch.relu(x.double() @ w.double()).float(), atol=1e-3))
        assert checked[0]
    return y
"""),
)
