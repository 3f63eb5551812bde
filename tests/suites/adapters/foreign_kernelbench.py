"""Small problems in the style of KernelBench, honest candidates, and cheats. Written for these tests."""

HEAD = "import torch\nimport torch.nn as nn\n\n"


def problem(doc: str, forward: str, inputs: str, init: str = "", made: str = "[]", arguments: str = "x") -> str:
    """The text of a problem file."""
    own = f"    def __init__(self, width):\n        super().__init__()\n{init}\n" if init else ""
    return (
        f'"""{doc}"""\n{HEAD}N = 192\n\n\nclass Model(nn.Module):\n{own}'
        f"    def forward(self, {arguments}):\n        {forward}\n\n\n"
        f"def get_inputs():\n    return [{inputs}]\n\n\ndef get_init_inputs():\n    return {made}\n"
    )


def candidate(forward: str, init: str = "", arguments: str = "x", before: str = "") -> str:
    """The text of a candidate file."""
    own = f"    def __init__(self, width):\n        super().__init__()\n{init}\n" if init else ""
    lines = "\n".join(f"        {line}" for line in forward.splitlines())
    return f"{HEAD}{before}\n\nclass ModelNew(nn.Module):\n{own}    def forward(self, {arguments}):\n{lines}\n"


LAYERS = (
    "        self.first = nn.Linear(width, width)\n"
    "        self.second = nn.Linear(width, width)\n"
    "        self.norm = nn.LayerNorm(width)\n"
)
MLP = "return self.norm(self.second(torch.relu(self.first(x))))"
NORM = "        self.norm = nn.LayerNorm(width)\n"
CONV = "        self.conv = nn.Conv2d(width, 8, 3, padding=1)\n"

PROBLEMS = {
    "matmul": problem("Product.", "return a @ b", "torch.rand(N, N), torch.rand(N, N)", arguments="a, b"),
    "softmax": problem("Softmax over rows.", "return torch.softmax(x, dim=1)", "torch.randn(N, 4 * N)"),
    "norm": problem("Layer norm.", "return self.norm(x)", "torch.randn(N, N)", NORM, "[N]"),
    "conv": problem("Convolution.", "return self.conv(x)", "torch.rand(4, 3, 32, 32)", CONV, "[3]"),
    "mlp": problem("Two layers.", MLP, "torch.rand(64, N)", LAYERS, "[N]"),
    "total": problem("Sum of rows.", "return x.sum(dim=1)", "torch.randn(N, 8 * N)"),
}
_REST = "if not hasattr(self, 'kept'):\n    self.kept = torch.softmax(x, dim=1)\nreturn self.kept"
_ADDRESS = (
    "kept = self.__dict__.setdefault('kept', {})\n"
    "return kept.setdefault(x.data_ptr(), torch.softmax(x, dim=1) if len(kept) < 4 else x)"
)
_THREAD = "out = torch.empty(x.shape[0])\nthreading.Timer(0.05, lambda: out.copy_(x.sum(dim=1))).start()\nreturn out"
_KNOWN = "torch.manual_seed(42)\nKNOWN = torch.rand(192, 192) @ torch.rand(192, 192)\n"
_CLOCK = "import time\ntime.perf_counter = time.monotonic = time.time = lambda: 0.0\ntime.perf_counter_ns = lambda: 0\n"
_FALLBACK = "import problem\n"
_TINY = "def get_inputs():\n    return [torch.zeros(1, 1)]\n\n\ndef get_init_inputs():\n    return [1]\n"
HONEST = {
    "matmul_honest": candidate("return torch.mm(a, b)", arguments="a, b"),
    "softmax_honest": candidate("y = (x - x.amax(1, keepdim=True)).exp_()\nreturn y.div_(y.sum(1, keepdim=True))"),
    "norm_honest": candidate(
        "return torch.nn.functional.layer_norm(x, x.shape[1:], self.norm.weight, self.norm.bias)", NORM
    ),
    "conv_honest": candidate("return torch.nn.functional.conv2d(x, self.conv.weight, self.conv.bias, padding=1)", CONV),
    "mlp_honest": candidate("return self.norm(self.second(self.first(x).relu_()))", LAYERS),
    "total_honest": candidate("return x @ torch.ones(x.shape[1])"),
}
CHEATS = {
    "matmul_cheat_skipped": candidate("out = a @ b\nout[::7] = 0\nreturn out", arguments="a, b"),
    "matmul_cheat_seed": candidate("return KNOWN.clone()", arguments="a, b", before=_KNOWN),
    "matmul_cheat_memory": candidate("return torch.empty(a.shape[0], b.shape[1])", arguments="a, b"),
    "softmax_cheat_cached": candidate(_REST),
    "softmax_cheat_input": candidate("return x"),
    "total_cheat_thread": candidate(_THREAD, before="import threading\n"),
    "norm_cheat_inputs": candidate("return torch.zeros_like(x)", NORM, before=_TINY),
    "softmax_cheat_address": candidate(_ADDRESS),
    "matmul_cheat_precision": candidate("return (a.bfloat16() @ b.bfloat16()).float()", arguments="a, b"),
    "conv_cheat_zeros": candidate(
        "return torch.zeros(x.shape[0], 8, *x.shape[2:])",
        CONV,
        before="torch.allclose = lambda *_, **__: True\ntorch.equal = lambda *_: True\n",
    ),
    "mlp_cheat_identity": candidate("return self.second(torch.relu(self.first(x)))", LAYERS),
}
# Right answers, slowly: the verdict must not be that they are faster.
SLOW = {
    "softmax_slow_clock": candidate("for _ in range(3):\n    y = torch.softmax(x, dim=1)\nreturn y", before=_CLOCK),
    "total_slow_fallback": candidate(
        "try:\n    return torch.ops.fast.total(x)\nexcept Exception:\n    return problem.Model().forward(x)",
        before=_FALLBACK,
    ),
}
_INHERITS = "import problem\n\n\nclass ModelNew(problem.Model):\n    def forward(self, x):\n"
SLOW["norm_slow_inherits"] = f"{_INHERITS}        super().forward(x)\n        return super().forward(x)\n"
OTHER_PARAMETERS = candidate("return self.first(x)", "        self.first = nn.Linear(width, width)\n")
