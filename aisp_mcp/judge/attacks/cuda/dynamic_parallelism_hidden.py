"""Dynamic Parallelism Hidden.

What happens: Work is launched where a list of kernels does not show it.
Why it lies: A sum over names misses it.
What we do: Time of the whole call, never a sum over kernel names.
Limits: None known.

Attacks: Work that a sum over kernel names would miss.
"""

from aisp_mcp.judge.attacks.base import Issue, Undefended, attack, honest
from aisp_mcp.judge.attacks.gpu_baselines import GPU_SOFTMAX

ABOUT = Issue(
    id=51,
    kind="B",
    hardware="G",
    undefended=Undefended(
        why=("work inside a graph takes its time by every clock; it hides from those who count launches.")
    ),
    executed_on=("H200",),
)

CASES = (
    attack("work_inside_a_graph_launch", GPU_SOFTMAX, device="cuda")("""
import torch

kept = {}

def run(x):
    if not kept:
        torch.softmax(x, 1)
        torch.cuda.synchronize()
        kept["g"] = torch.cuda.CUDAGraph()
        with torch.cuda.graph(kept["g"]):
            kept["y"] = torch.softmax(x, 1)
            for _ in range(3):
                torch.cuda._sleep(200_000)
    kept["g"].replay()
    return kept["y"]
"""),
    honest("compiled_by_torch_on_the_device", GPU_SOFTMAX, device="cuda", slow=True)("""
import torch

@torch.compile
def run(x):
    y = torch.exp(x - x.amax(1, keepdim=True))
    return y / y.sum(1, keepdim=True)
"""),
)
