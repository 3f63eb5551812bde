"""Host Callback Escape.

What happens: A function of the host, run from the stream, leaves its work to a thread.
Why it lies: Neither events nor the stream know of the thread.
What we do: Poisoned outputs; parent clock.
Limits: Host functions that work are legitimate and not reported.

Attacks: A function of the host in the stream, that leaves its work to a thread.
"""

from aisp_mcp.judge.attacks.base import Issue, Undefended, attack, honest
from aisp_mcp.judge.attacks.gpu_baselines import GPU_MATMUL, GPU_SOFTMAX

ABOUT = Issue(id=43, kind="B", hardware="G", undefended=Undefended(1.51, "own word", "H200"), executed_on=("H200",))

CASES = (
    attack("callback_that_starts_a_thread", GPU_MATMUL, device="cuda")("""
import ctypes, threading, torch

path = [line.split()[-1] for line in open("/proc/self/maps") if "libcudart" in line][0]
runtime, todo, side = ctypes.CDLL(path), [], torch.cuda.Stream()

def work():
    while todo:
        y, x, w = todo.pop()
        with torch.cuda.stream(side):
            y.copy_(torch.relu(x @ w))

@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def later(_):
    threading.Thread(target=work, daemon=True).start()

def run(x, w):
    y = torch.full_like(x, float("nan"))
    todo.append((y, x, w))
    runtime.cudaLaunchHostFunc(ctypes.c_void_p(torch.cuda.current_stream().cuda_stream), later, None)
    return y
"""),
    honest("callback_that_counts", GPU_SOFTMAX, device="cuda")("""
import ctypes, torch

path = [line.split()[-1] for line in open("/proc/self/maps") if "libcudart" in line][0]
runtime, counted = ctypes.CDLL(path), []

@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def count(_):
    counted.append(1)

def run(x):
    y = torch.softmax(x, 1)
    runtime.cudaLaunchHostFunc(ctypes.c_void_p(torch.cuda.current_stream().cuda_stream), count, None)
    return y
"""),
)
