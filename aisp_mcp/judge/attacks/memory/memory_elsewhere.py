"""Memory Elsewhere.

What happens: Where memory decides, scratch lies in files or places of other calls, or pages are dropped.
Why it lies: The memory is used all the same; only the resident pages of the process do not show it.
What we do: Anonymous, shared and file-held memory of the tree above the prepared program; rounds of one call.
Limits: At L1 a file outside the folder, closed before it is read. A device: its allocator says. State remade in calls.

Attacks: Scratch memory where nobody looks, and an honest saving.
"""

from aisp_mcp.judge.attacks.base import Issue, Undefended, attack, honest
from aisp_mcp.judge.attacks.baselines import COPIES, spec

ABOUT = Issue(
    id=99,
    kind="D",
    control="Anonymous, shared and file-held memory of the whole process tree, sampled in rounds",
    undefended=Undefended(why="not measured yet."),
)

DEEP = spec("The gradient of eight layers with respect to their input; what counts is memory.")("""
goal = "memory"

def params(self, rng):
    return {f"w{i}": rng.randn(64, 64) / 8 for i in range(8)}

def inputs(self, rng):
    return {"x": rng.randn(4096, 64)}

def run(self, x, **w):
    x = x.clone().requires_grad_()
    y = x
    for one in w.values():
        y = F.silu(y @ one) * torch.tanh(y @ one)
    y.sum().backward()
    return x.grad
""")

LOOKUP = spec("A lookup in a table that the program keeps; what counts is memory.")("""
goal = "memory"
table = torch.linspace(0.0, 1.0, 4 << 20)

def inputs(self, rng):
    return {"x": rng.randn(512, 512)}

def run(self, x):
    at = (x.abs() * 1000).long().clamp_(max=(4 << 20) - 1)
    return x.expand(16, 512, 512).clone().sum(0) + self.table[at]
""")

CLONE = spec("A copy; what counts is memory.")("""
goal = "memory"

def inputs(self, rng):
    return {"x": rng.randn(512, 512)}

def run(self, x):
    return x.clone()
""")

_IN_A_FILE = """
import os, torch

def run(x):
    fd = {open}
    raw = memoryview(x.numpy()).cast("B")
    for _ in range(16):
        os.write(fd, raw)
    out, part = torch.zeros_like(x), torch.empty(64, 512)
    view = memoryview(part.numpy()).cast("B")
    for row in range(0, 512, 64):
        for copy in range(16):
            os.preadv(fd, [view], copy * x.nbytes + row * 512 * 4)
            out[row : row + 64] += part
    os.close(fd)
    return out
"""

CASES = (
    attack("scratch_in_an_anonymous_file", COPIES)(_IN_A_FILE.format(open='os.memfd_create("scratch")')),
    attack("scratch_in_the_page_cache", COPIES)(
        _IN_A_FILE.format(open='os.open(os.environ["TMPDIR"], os.O_TMPFILE | os.O_RDWR)')
    ),
    attack("library_pages_dropped", COPIES)("""
import ctypes, torch

libc, spans = ctypes.CDLL(None), []
for line in open("/proc/self/maps"):
    fields = line.split()
    if "libtorch_cpu" in line and fields[1].startswith("r-x"):
        begin, end = (int(value, 16) for value in fields[0].split("-"))
        spans.append((begin, end - begin))

def run(x):
    for begin, size in spans:
        libc.madvise(ctypes.c_void_p(begin), ctypes.c_size_t(size), 4)
    return x.expand(16, 512, 512).clone().sum(0)
"""),
    attack("workspace_kept_since_the_first_call", COPIES)("""
import torch

kept = []

def run(x):
    if not kept:
        kept.append(torch.empty(16, 512, 512))
    kept[0].copy_(x.expand(16, 512, 512))
    return kept[0].sum(0)
"""),
    attack("state_made_again_by_a_child_after_the_call", LOOKUP)("""
import os, torch

table = torch.linspace(0.0, 1.0, 4 << 20)
child = None

def run(x):
    global table, child
    if child:
        os.waitpid(child, 0)
    if table is None:
        table = torch.linspace(0.0, 1.0, 4 << 20)
    at = (x.abs() * 1000).long().clamp_(max=(4 << 20) - 1)
    found = table[at]
    del at
    table = None
    found += x.expand(16, 512, 512).clone().sum(0)
    child = os.fork()
    if not child:
        for _ in range(50):
            kept = torch.linspace(0.0, 1.0, 4 << 20)
        os._exit(0)
    return found
"""),
    attack("scratch_in_the_outputs_of_later_calls", COPIES)("""
import ctypes, torch

seen = [0]

def run(x):
    at = x.data_ptr()
    for line in open("/proc/self/maps"):
        begin, end = (int(value, 16) for value in line.split()[0].split("-"))
        if begin <= at < end:
            break
    seen[0] = max(seen[0], at + 4 * x.nbytes)
    free = end - seen[0]
    if free < 16 * x.nbytes:
        return x.expand(16, 512, 512).clone().sum(0)
    raw = (ctypes.c_float * (16 * x.numel())).from_address(end - 16 * x.nbytes)
    scratch = torch.frombuffer(raw, dtype=torch.float32).view(16, 512, 512)
    scratch.copy_(x.expand(16, 512, 512))
    return scratch.sum(0)
"""),
    attack("the_same_program_beside_an_output_that_the_harness_keeps", CLONE)("""
def run(x):
    return x.clone()
"""),
    honest("state_dropped_in_the_call_and_made_again", LOOKUP)("""
import torch

table = torch.linspace(0.0, 1.0, 4 << 20)

def run(x):
    global table
    at = (x.abs() * 1000).long().clamp_(max=(4 << 20) - 1)
    found = table[at]
    del at, table
    found += x.expand(16, 512, 512).clone().sum(0)
    table = torch.linspace(0.0, 1.0, 4 << 20)
    return found
"""),
    honest("gradient_checkpointing", DEEP)("""
import torch
import torch.nn.functional as F

def block(y, *ws):
    for one in ws:
        y = F.silu(y @ one) * torch.tanh(y @ one)
    return y

def run(x, **w):
    from torch.utils.checkpoint import checkpoint
    x = x.clone().requires_grad_()
    y, ws = x, list(w.values())
    for at in range(0, 8, 2):
        y = checkpoint(block, y, *ws[at : at + 2], use_reentrant=False)
    y.sum().backward()
    return x.grad
"""),
)
