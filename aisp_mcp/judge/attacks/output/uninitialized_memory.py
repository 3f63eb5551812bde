"""Uninitialized Memory.

What happens: Memory is returned as it was found.
Why it lies: It may hold the answer of an earlier call.
What we do: Outputs poisoned before every round.
Limits: Integer outputs are checked in the compared calls only.

Attacks: Whatever memory holds, in the hope that it is the answer of an earlier call.
"""

from aisp_mcp.judge.attacks.base import Issue, Undefended, attack, honest
from aisp_mcp.judge.attacks.baselines import MATMUL_RELU
from aisp_mcp.judge.attacks.snippets import NATIVE_PRODUCT

ABOUT = Issue(id=17, kind="B", undefended=Undefended(419, "one process", "cpu"), executed_on=("cpu",))

CASES = (
    attack("memory_as_it_was_found", MATMUL_RELU)("import torch\n\ndef run(x, w):\n    return torch.empty(256, 256)\n"),
    attack("poison_handed_back", MATMUL_RELU)("""
import torch

y = torch.full((256, 256), -1, dtype=torch.int32).view(torch.float32)

def run(x, w):
    return y
"""),
    honest("every_element_of_new_memory_written", MATMUL_RELU)("""
import torch

def run(x, w):
    y = torch.empty(256, 256)
    torch.mm(x, w, out=y)
    return y.relu_()
"""),
    attack("native_rows_left_out", MATMUL_RELU, before=NATIVE_PRODUCT, suffix=".cpp", needs=("g++",))("""
    rows(x, w, y, 0, m / 2, inner, n);
    return 0;
}
"""),
)
