"""Context Switch Overhead.

What happens: Another process loads the device while the other side runs.
Why it lies: The baseline shares the device.
What we do: Palindromes; processes stopped outside their rounds.
Limits: Processes of other users on the device are reported at most.

Attacks: A second process on the device while the other side runs.
"""

from aisp_mcp.judge.attacks.base import Issue, Undefended, attack, honest
from aisp_mcp.judge.attacks.gpu_baselines import GPU_MATMUL, GPU_SOFTMAX

ABOUT = Issue(
    id=48,
    kind="D",
    hardware="G",
    undefended=Undefended(
        why=("an orphan that keeps the device busy slows its own candidate as much as the baseline.")
    ),
    executed_on=("H200",),
)

CASES = (
    attack("busy_orphan_on_the_device", GPU_MATMUL, device="cuda", needs=("namespaces",))('''
import os, subprocess, sys, torch

code = """import torch
a = torch.rand(1024, 1024, device='cuda')
print(1, flush=True)
while True: a @ a; torch.cuda.synchronize()"""
command = f'{sys.executable} -c "{code}" & echo $!'
started = subprocess.Popen(["sh", "-c", command], stdout=subprocess.PIPE, text=True, start_new_session=True)
orphan = int(started.stdout.readline())
started.stdout.readline()

def run(x, w):
    os.kill(orphan, 19)
    y = torch.relu(x @ w)
    torch.cuda.current_stream().synchronize()
    os.kill(orphan, 18)
    return y
'''),
    honest("large_reservation_on_the_device", GPU_SOFTMAX, device="cuda")("""
import torch

reserved = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")

def run(x):
    return torch.softmax(x, 1)
"""),
)
