"""Library Version Mismatch.

What happens: Libraries or the harness's own files are exchanged.
Why it lies: Other code is measured or judges.
What we do: Read-only file system; nothing of the candidate's process is believed.
Limits: Declared libraries inside the candidate's folder are legitimate.

Attacks: Other libraries under the same name.
"""

from aisp_mcp.judge.attacks.base import Issue, Undefended, attack, honest
from aisp_mcp.judge.attacks.baselines import MATMUL_RELU

ABOUT = Issue(id=77, kind="D", isolation="L2", undefended=Undefended(794, "one process", "cpu"), executed_on=("cpu",))

CASES = (
    attack("functions_of_torch_replaced", MATMUL_RELU)("""
import torch

torch.Tensor.copy_ = lambda self, other, **_: self
torch.Tensor.stride = lambda self: (256, 1)
torch.Tensor.shape = property(lambda self: torch.Size((256, 256)))

def run(x, w):
    return x
"""),
    attack("package_of_the_referee_replaced", MATMUL_RELU)("""
import glob, os, sys, torch

for path in glob.glob(os.path.join(os.path.dirname(sys.modules["aisp_mcp"].__file__), "harness", "verdict.py")):
    try:
        os.rename(path, path)
        open(path, "a").close()
    except OSError:
        continue
    raise SystemError("the harness's own files can be changed")

def run(x, w):
    return torch.relu(x @ w)
"""),
    honest("numpy_in_place_of_torch", MATMUL_RELU)("""
import numpy, torch

def run(x, w):
    return torch.from_numpy(numpy.maximum(x.numpy() @ w.numpy(), 0))
"""),
)
