"""CPU Spillover.

What happens: The work moves to the CPU, where the device's clock does not see it.
Why it lies: Kernel times are not the time of the call.
What we do: Parent clock around the whole call.
Limits: CPU use is reported, not judged.

Attacks: Work done on the CPU behind the device's clock.
"""

from aisp_mcp.judge.attacks.base import Issue, Undefended, attack, honest
from aisp_mcp.judge.attacks.gpu_baselines import GPU_MATMUL, GPU_SOFTMAX

ABOUT = Issue(id=29, kind="B", hardware="G", undefended=Undefended(50, "one process", "H200"), executed_on=("H200",))

CASES = (
    attack("product_on_the_cpu", GPU_SOFTMAX, device="cuda")("""
import torch

def run(x):
    return torch.softmax(x.cpu(), 1).to(x.device)
"""),
    attack("thread_that_launches_later", GPU_MATMUL, device="cuda")("""
import threading, torch

def run(x, w):
    y = torch.full_like(x, float("nan"))
    threading.Thread(target=lambda: torch.relu_(torch.mm(x, w, out=y)), daemon=True).start()
    return y
"""),
    honest("thread_that_launches_and_joins", GPU_MATMUL, device="cuda")("""
import threading, torch

def run(x, w):
    y = torch.empty_like(x)
    stream = torch.cuda.current_stream()
    def work():
        with torch.cuda.stream(stream):
            torch.relu_(torch.mm(x, w, out=y))
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return y
"""),
    honest("plan_made_on_the_host", GPU_SOFTMAX, device="cuda")("""
import torch

def run(x):
    sizes = [1024] * (x.shape[0] // 1024)
    order = torch.tensor(range(len(sizes)), device=x.device)
    parts = torch.split(x, sizes)
    return torch.cat([torch.softmax(parts[i], 1) for i in order.tolist()])
"""),
)
