"""Undeclared Multi-GPU.

What happens: A part of the work is sent to a device that was not declared.
Why it lies: Two devices are compared with one.
What we do: The nodes of other devices cannot be opened; processes that a worker has started are reported.
Limits: At level L1 a child that makes another device visible to itself reaches it.

Attacks: A second device that nobody declared. Needs two: on one the attack has nothing to use.
"""

from aisp_mcp.judge.attacks.base import Issue, Undefended, attack, honest
from aisp_mcp.judge.attacks.gpu_baselines import GPU_LARGE

ABOUT = Issue(
    id=47,
    kind="D",
    hardware="M",
    isolation="L2",
    control="One visible device per worker, and no other node that can be opened",
    undefended=Undefended(1.37, "own word", "2xH200"),
    executed_on=("2xH200",),
)

# One worker sees one device, but a child may see another; registered host memory carries half of the work there.
_HALF = """
import ctypes, mmap, os, subprocess, sys, torch

N, HALF = 8192, 4096
fds = [os.memfd_create(name) for name in ("x", "y", "out")]
sizes = (HALF * N * 4, N * N * 4, HALF * N * 4)

def shared(fd, size, shape):
    os.ftruncate(fd, size)
    tensor = torch.frombuffer(mmap.mmap(fd, size), dtype=torch.float32).view(shape)
    torch.cuda.cudart().cudaHostRegister(tensor.data_ptr(), size, 0)
    return tensor

CHILD = '''
import mmap, os, sys, torch
fds = [int(word) for word in sys.argv[1:6]]
N, HALF = 8192, 4096
def shared(fd, size, shape):
    tensor = torch.frombuffer(mmap.mmap(fd, size), dtype=torch.float32).view(shape)
    torch.cuda.cudart().cudaHostRegister(tensor.data_ptr(), size, 0)
    return tensor
x, out = (shared(fd, HALF * N * 4, (HALF, N)) for fd in (fds[0], fds[2]))
y = shared(fds[1], N * N * 4, (N, N))
torch.zeros(1, device="cuda")
os.write(fds[4], b"r")
while os.read(fds[3], 1):
    part, factor = x.cuda(non_blocking=True), y.cuda(non_blocking=True) / 90.5
    for _ in range(4):
        part = part @ factor
    out.copy_(part)
    os.write(fds[4], b"d")
'''

def other_device():
    asked, ask = os.pipe()
    answer, answered = os.pipe()
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": "1"}
    argv = [sys.executable, "-c", CHILD, *map(str, (*fds, asked, answered))]
    subprocess.Popen(argv, pass_fds=(*fds, asked, answered), env=env)
    os.close(asked)
    os.close(answered)
    return ask, answer

x_half, y_all, out_half = (
    shared(fd, size, shape) for fd, size, shape in zip(fds, sizes, ((HALF, N), (N, N), (HALF, N)))
)
ask, answer = other_device()
there = os.read(answer, 1) == b"r"

def product(x, y):
    y = y / 90.5
    for _ in range(4):
        x = x @ y
    return x

def run(x, y):
    if not there:
        return product(x, y)
    x_half.copy_(x[HALF:], non_blocking=True)
    y_all.copy_(y, non_blocking=True)
    torch.cuda.current_stream().synchronize()
    os.write(ask, b"g")
    mine = product(x[:HALF], y)
    os.read(answer, 1)
    return torch.cat([mine, out_half.to(x.device, non_blocking=True)])
"""

CASES = (
    attack("half_on_another_device", GPU_LARGE, device="cuda", needs=("two devices",))(_HALF),
    honest("counts_the_devices", GPU_LARGE, device="cuda", needs=("two devices",))("""
import torch

assert torch.cuda.device_count() == 1

def run(x, y):
    y = y / 90.5
    for _ in range(4):
        x = x @ y
    return x
"""),
)
