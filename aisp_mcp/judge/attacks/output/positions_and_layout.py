"""Positions And Layout.

What happens: Positions of a selection are wrong or repeated; a transposition is left to whoever stores the result.
Why it lies: The values look right, and the work that the contract asks for is missing.
What we do: Positions are right by the values they point to, each once; a copy into the contract's strides is timed.
Limits: Positions into anything but an input are compared exactly.

Attacks: Positions, strides and precision: what is wrong, and what only looks so.
"""

from aisp_mcp.judge.attacks.base import Issue, Undefended, attack, honest
from aisp_mcp.judge.attacks.baselines import SOFTMAX, spec

ABOUT = Issue(
    id=102,
    kind="N",
    control="Positions compared by the values they point to; copies into strides are timed",
    undefended=Undefended(why="not measured yet."),
)

TOPK_TIES = spec("The sixteen largest values of each row and where they are; in bfloat16 many are equal.")("""
tolerance = Tolerance(indices={"out.1": ("x", 1)})

def inputs(self, rng):
    return {"x": rng.randn(64, 4096, dtype="bfloat16")}

def run(self, x):
    return x.topk(16, 1)
""")

STRICT = SOFTMAX.replace("class Small(Benchmark):\n", 'class Small(Benchmark):\n    layout = "strict"\n')

SPECTRUM = spec("The spectrum of real rows.")("""
def inputs(self, rng):
    return {"x": rng.randn(64, 4096)}

def run(self, x):
    return torch.fft.rfft(x)
""")

MIXED = spec("A product in bfloat16 whose result is stored in float32.")("""
def params(self, rng):
    return {"w": rng.randn(256, 256)}

def inputs(self, rng):
    return {"x": rng.randn(256, 256)}

def run(self, x, w):
    return (x.bfloat16() @ w.bfloat16()).float()
""")

BUFFERED = spec("Rows added up in a float32 buffer.")("""
def inputs(self, rng):
    return {"x": rng.randn(4096, 64), "index": rng.randint(0, 128, 4096)}

def run(self, x, index):
    return torch.zeros(128, 64, dtype=torch.float32, device=x.device).index_add_(0, index, x)
""")

SOLVE = spec("The solution of linear systems, whose strides the library chooses.")("""
def inputs(self, rng):
    a = rng.randn(8, 64, 64, scale=1.0, shift=0.0)
    return {"a": a + 20 * torch.eye(64, device=a.device), "b": rng.randn(8, 64, 16)}

def run(self, a, b):
    return torch.linalg.solve(a, b).contiguous()
""")

_LIBRARY = "import torch\n\ndef run({inputs}):\n    return {call}\n"
_TOPK = "import torch\n\ndef run(x):\n    values, at = x.topk(16, 1)\n"

CASES = (
    attack("positions_repeated", TOPK_TIES)(_TOPK + "    return values, at[:, :1].repeat(1, 16)\n"),
    attack("positions_of_the_first", TOPK_TIES)(_TOPK + "    return values, torch.arange(16).repeat(64, 1)\n"),
    attack("strides_left_to_the_reader", STRICT)(
        "import torch\n\ndef run(x):\n    return torch.softmax(x.t().contiguous(), 0).t()\n"
    ),
    honest("ties_in_another_order", TOPK_TIES)("""
def run(x):
    values, at = x.flip(1).sort(dim=1, descending=True, stable=True)
    return values[:, :16].contiguous(), (x.shape[1] - 1 - at[:, :16]).contiguous()
"""),
    honest("transposed_result", SOFTMAX)(
        "import torch\n\ndef run(x):\n    return torch.softmax(x.t().contiguous(), 0).t()\n"
    ),
    honest("strides_of_a_solver", SOLVE)(_LIBRARY.format(inputs="a, b", call="torch.linalg.solve(a, b)")),
    honest("half_of_a_full_spectrum", SPECTRUM)(_LIBRARY.format(inputs="x", call="torch.fft.fft(x)[:, :2049]")),
    honest("mixed_in_full_precision", MIXED)("def run(x, w):\n    return x @ w\n"),
    honest("sum_by_a_product", BUFFERED)("""
import torch

def run(x, index):
    chosen = torch.zeros(128, len(x)).index_put_((index, torch.arange(len(x))), torch.ones(()))
    return chosen @ x
"""),
)
