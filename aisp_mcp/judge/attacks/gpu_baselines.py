"""Tiny benchmarks that the cases on a GPU share."""

from aisp_mcp.judge.attacks.baselines import spec

# On a GPU: long enough for the device's clock, short enough for many calls in a round.
GPU_MATMUL = spec("Multiply by a static matrix and clip, on a GPU.")("""
def params(self, rng):
    return {"w": rng.randn(2048, 2048)}

def inputs(self, rng):
    return {"x": rng.randn(2048, 2048)}

def run(self, x, w):
    return torch.relu(x @ w)
""")

# Some ten microseconds: what can be gained at the ends of a round counts most.
GPU_SHORT = spec("Softmax over few rows, on a GPU.")("""
def inputs(self, rng):
    return {"x": rng.randn(1024, 1024)}

def run(self, x):
    return torch.softmax(x, 1)
""")

# Nearly all of a call is reading weights, which many calls at once need to do only once.
GPU_WEIGHTS = spec("Few rows by a large static matrix, on a GPU.")("""
def params(self, rng):
    return {"w": rng.randn(16384, 8192, dtype="bfloat16")}

def inputs(self, rng):
    return {"x": rng.randn(8, 16384, dtype="bfloat16")}

def run(self, x, w):
    return x @ w
""")

GPU_SMALL = spec("Four short kernels on a small input, on a GPU.")("""
def inputs(self, rng):
    return {"x": rng.randn(128, 256)}

def run(self, x):
    return torch.softmax(torch.tanh(torch.nn.functional.gelu(x) + 1), 1)
""")

GPU_SOFTMAX = spec("Softmax over rows, on a GPU.")("""
def inputs(self, rng):
    return {"x": rng.randn(4096, 2048)}

def run(self, x):
    return torch.softmax(x, 1)
""")

# Some four times as long as one pass over its input, so that copies are a good part of it and clocks still tell.
GPU_CHAIN = spec("Four operations one after another, on a GPU.")("""
def inputs(self, rng):
    return {"x": rng.randn(4096, 2048)}

def run(self, x):
    return torch.softmax(torch.tanh(torch.nn.functional.gelu(x) + 1), 1)
""")

GPU_COPY = spec("A large copy on a GPU.")("""
def inputs(self, rng):
    return {"x": rng.randn(4096, 8192)}

def run(self, x):
    return x.clone()
""")

GPU_OFFLOAD = spec("To pinned memory of the host and back.")("""
host = None

def inputs(self, rng):
    return {"x": rng.randn(2048, 2048)}

def run(self, x):
    if not x.is_cuda:
        return x.clone()
    if self.host is None:
        self.host = torch.empty(x.shape, dtype=x.dtype, pin_memory=True)
    self.host.copy_(x, non_blocking=True)
    return self.host.to(x.device, non_blocking=True)

def reference(self, x):
    return x.clone()
""")

GPU_LARGE = spec("Products so large that moving half of them over the bus pays.")("""
def inputs(self, rng):
    return {"x": rng.randn(8192, 8192), "y": rng.randn(8192, 8192)}

def run(self, x, y):
    y = y / 90.5
    for _ in range(4):
        x = x @ y
    return x
""")
