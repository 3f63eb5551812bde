"""Unified Memory Faults.

What happens: Data lie in memory whose pages move between host and device, and are moved when nobody looks.
Why it lies: Faults and transfers are paid outside the timed call, or by the other side.
What we do: Inputs and outputs lie in buffers of the harness; results are copied there within the parent's interval.
Limits: Managed memory inside the candidate is its own affair; more of it than is free can hang a device.

Attacks: Managed memory in place of the harness's buffers. Few megabytes: more than is free can hang a device.
"""

from aisp_mcp.judge.attacks.base import Issue, Undefended, attack, honest
from aisp_mcp.judge.attacks.gpu_baselines import GPU_SOFTMAX

ABOUT = Issue(
    id=52,
    kind="B",
    hardware="G",
    control="Buffers owned by the harness",
    undefended=Undefended(3.59, "one process", "H200"),
    executed_on=("H200",),
)

_MANAGED = """
import ctypes, torch

torch.cuda.init()
with open("/proc/self/maps") as file:
    path = next(line.split()[-1] for line in file if "libcudart" in line)
runtime, pointer = ctypes.CDLL(path), ctypes.c_void_p()
assert runtime.cudaMallocManaged(ctypes.byref(pointer), ctypes.c_size_t(4096 * 2048 * 4), ctypes.c_uint(1)) == 0

class Bytes:
    __cuda_array_interface__ = {
        "shape": (4096, 2048), "typestr": "<f4", "data": (pointer.value, False), "version": 2,
    }

managed = torch.as_tensor(Bytes(), device="cuda")
"""

CASES = (
    # The pages move to whoever touches them: the answer of the first call waits on the host's side.
    attack("answer_waits_in_managed_memory", GPU_SOFTMAX, before=_MANAGED, device="cuda")("""
filled = []

def run(x):
    if not filled:
        managed.copy_(torch.softmax(x, 1))
        filled.append(1)
    return managed
"""),
    honest("output_in_managed_memory", GPU_SOFTMAX, before=_MANAGED, device="cuda")("""
def run(x):
    return managed.copy_(torch.softmax(x, 1))
"""),
)
