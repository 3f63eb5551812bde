"""Graph Capture Cheat.

What happens: A captured graph is not replayed, or does not read its inputs.
Why it lies: The launch is timed, not the work.
What we do: Fresh contents in static buffers; timed calls verified.
Limits: None known.

Attacks: A captured graph that does not read its inputs, or does not run.
"""

from aisp_mcp.judge.attacks.base import Issue, Undefended, attack, honest
from aisp_mcp.judge.attacks.gpu_baselines import GPU_MATMUL

ABOUT = Issue(id=31, kind="B", hardware="G", undefended=Undefended(60, "one process", "H200"), executed_on=("H200",))

CASES = (
    attack("graph_without_copy_in", GPU_MATMUL, device="cuda")("""
import torch

kept = {}

def run(x, w):
    if not kept:
        kept["x"] = x.clone()
        torch.relu(kept["x"] @ w)
        torch.cuda.synchronize()
        kept["g"] = torch.cuda.CUDAGraph()
        with torch.cuda.graph(kept["g"]):
            kept["y"] = torch.relu(kept["x"] @ w)
    kept["g"].replay()
    return kept["y"]
"""),
    attack("graph_without_replay", GPU_MATMUL, device="cuda")("""
import torch

kept = {}

def run(x, w):
    if not kept:
        torch.relu(x @ w)
        torch.cuda.synchronize()
        kept["g"] = torch.cuda.CUDAGraph()
        with torch.cuda.graph(kept["g"]):
            kept["y"] = torch.relu(x @ w)
        kept["g"].replay()
    return kept["y"]
"""),
    honest("graph_on_the_inputs_themselves", GPU_MATMUL, device="cuda")("""
import torch

kept = {}

def run(x, w):
    if kept.get("at") != x.data_ptr():
        torch.relu(x @ w)
        torch.cuda.synchronize()
        kept["at"], kept["g"] = x.data_ptr(), torch.cuda.CUDAGraph()
        with torch.cuda.graph(kept["g"]):
            kept["y"] = torch.relu(x @ w)
    kept["g"].replay()
    return kept["y"]
"""),
    honest("graph_with_copy_in", GPU_MATMUL, device="cuda")("""
import torch

kept = {}

def run(x, w):
    if not kept:
        kept["x"] = x.clone()
        torch.relu(x @ w)
        torch.cuda.synchronize()
        kept["g"] = torch.cuda.CUDAGraph()
        with torch.cuda.graph(kept["g"]):
            kept["y"] = torch.relu(kept["x"] @ w)
    kept["x"].copy_(x)
    kept["g"].replay()
    return kept["y"]
"""),
)
