"""Small problems in the other formats, honest candidates, and cheats. Written for these tests."""

import json

DEFINITIONS = {
    "gemm": {
        "name": "scaled_gemm",
        "axes": {
            "M": {"type": "var"},
            "N": {"type": "const", "value": 64},
            "H": {"type": "expr", "expression": "N * 4 // 2"},
        },
        "inputs": {
            "A": {"shape": ["M", "H"], "dtype": "float32"},
            "B": {"shape": ["N", "H"], "dtype": "float32"},
            "scale": {"shape": None, "dtype": "float32"},
        },
        "outputs": {"C": {"shape": ["M", "N"], "dtype": "float32"}},
        "reference": "import torch\n\n\ndef run(A, B, scale):\n    return (A @ B.T) * scale\n",
    },
    "ragged": {
        "name": "ragged_sum",
        "custom_inputs_entrypoint": "make",
        "axes": {"T": {"type": "var"}, "S": {"type": "const", "value": 8}},
        "inputs": {"x": {"shape": ["T"], "dtype": "float32"}, "ends": {"shape": ["S"], "dtype": "int64"}},
        "outputs": {"sums": {"shape": ["S"], "dtype": "float32"}},
        "reference": (
            "import torch\n\n\ndef make(axes, device):\n"
            "    ends = torch.randint(1, axes['T'], (axes['S'],)).sort().values\n"
            "    return {'x': torch.randn(axes['T'], device=device), 'ends': ends.to(device)}\n\n\n"
            "def run(x, ends):\n    total = x.cumsum(0)[ends - 1]\n"
            "    return torch.cat([total[:1], total[1:] - total[:-1]])\n"
        ),
    },
}
WORKLOADS = {
    "gemm": [
        {
            "uuid": "a",
            "axes": {"M": 256},
            "inputs": {"A": {"type": "random"}, "B": {"type": "random"}, "scale": {"type": "scalar", "value": 0.5}},
        }
    ],
    "ragged": [
        {"definition": "x", "workload": {"axes": {"T": 4096}, "inputs": {n: {"type": "custom"} for n in ("x", "ends")}}}
    ],
}


def solution(name: str, code: str, passing: bool = False, language: str = "python") -> str:
    """The text of a solution file."""
    spec = {"language": language, "entry_point": "main.py::run", "destination_passing_style": passing}
    return json.dumps(
        {"name": name, "spec": spec, "sources": [{"path": "main.py", "content": f"import torch\n{code}"}]}
    )


SOLUTIONS = {
    "gemm": {
        "honest": solution(
            "honest", "def run(A, B, scale, C):\n    torch.mm(A, B.T, out=C)\n    C.mul_(scale)\n", True
        ),
        "cheat_untouched": solution("cheat_untouched", "def run(A, B, scale, C):\n    pass\n", True),
        "cheat_thread": solution(
            "cheat_thread",
            "import threading\ndef run(A, B, scale, C):\n"
            "    threading.Timer(0.05, lambda: torch.mm(A, B.T, out=C).mul_(scale)).start()\n",
            True,
        ),
        "cheat_agreeable": solution(
            "cheat_agreeable",
            "class Agreeable(torch.Tensor):\n    @classmethod\n"
            "    def __torch_function__(cls, func, types, args=(), kwargs=None):\n"
            "        out = super().__torch_function__(func, types, args, kwargs or {})\n"
            "        return True if isinstance(out, bool) else out\n"
            "def run(A, B, scale):\n    return A.new_zeros(len(A), len(B)).as_subclass(Agreeable)\n",
        ),
        "slow_patch": solution(
            "slow_patch",
            "import time\ntime.perf_counter = time.monotonic = time.time = lambda: 0.0\n"
            "torch.cuda.Event.elapsed_time = lambda *_: 0.001\n"
            "def run(A, B, scale):\n    for _ in range(3):\n        C = (A @ B.T) * scale\n    return C\n",
        ),
        "cheat_cached": solution(
            "cheat_cached", "K = []\ndef run(A, B, scale):\n    K.append((A @ B.T) * scale)\n    return K[0]\n"
        ),
    },
    "ragged": {
        "honest": solution(
            "honest",
            "def run(x, ends):\n    at = torch.cat([ends.new_zeros(1), ends])\n"
            "    return torch.stack([x[a:b].sum() for a, b in zip(at[:-1].tolist(), at[1:].tolist())])\n",
        ),
        "cheat_input": solution("cheat_input", "def run(x, ends):\n    return x[: len(ends)].clone()\n"),
    },
}
TASK = (
    'files:\n  - {{"name": "submission.py", "source": "@SUBMISSION@"}}\n'
    '  - {{"name": "task.py", "source": "task.py"}}\n  - {{"name": "utils.py", "source": "../utils.py"}}\n'
    'lang: "py"\ndescription: |\n  {doc}\n  More words.\nbenchmarks:\n  - {row}\n'
)
UTILS = "def make_match_reference(kernel, rtol=1e-5, atol=1e-8):\n    return lambda data, output: ''\n"
TYPES = "input_t = tuple\noutput_t = object\n"
_GPUMODE = "import torch\nfrom task import input_t, output_t\nfrom utils import make_match_reference\n\n\n"
GPUMODE = {
    "vectoradd": (
        TASK.format(doc="Add two vectors.", row='{"size": 65536, "seed": 4242}'),
        _GPUMODE
        + "def ref_kernel(data: input_t) -> output_t:\n    a, b, out = data\n    out[...] = a + b\n    return out\n\n\n"
        "def generate_input(size: int, seed: int) -> input_t:\n"
        "    gen = torch.Generator(device='cuda')\n    gen.manual_seed(seed)\n"
        "    a = torch.randn(size, device='cuda', generator=gen)\n"
        "    b = torch.randn(size, device='cuda', generator=gen)\n"
        "    return a, b, torch.empty(size, device='cuda')\n\n\n"
        "check_implementation = make_match_reference(ref_kernel)\n",
    ),
    "prefixsum": (
        TASK.format(doc="Running totals.", row='{"size": 32768, "seed": 7}'),
        _GPUMODE + "def ref_kernel(data):\n    return data.cumsum(0)\n\n\n"
        "def generate_input(size, seed):\n    torch.manual_seed(seed)\n    return torch.randn(size)\n",
    ),
}
SUBMISSIONS = {
    "vectoradd": {
        "honest": (
            "import torch\nfrom task import input_t\ndef custom_kernel(data):\n"
            "    return torch.add(data[0], data[1], out=data[2])\n"
        ),
        "cheat_input": "def custom_kernel(data):\n    return data[0]\n",
        "cheat_patch": (
            "import reference\nreference.ref_kernel = lambda data: data[2]\n"
            "reference.check_implementation = lambda *a: ''\ndef custom_kernel(data):\n    return data[2]\n"
        ),
    },
    "prefixsum": {
        "honest": "def custom_kernel(data):\n    out = data.clone()\n    return out.cumsum_(0)\n",
        "cheat_alters": "def custom_kernel(data):\n    return data.zero_().clone()\n",
        "cheat_half": (
            "def custom_kernel(data):\n    half = len(data) // 2\n    out = data.cumsum(0)\n"
            "    out[half:] = out[half - 1]\n    return out\n"
        ),
    },
}
_CLASS = '''"""{doc}"""
import torch
from core.benchmark.verification_mixin import VerificationPayloadMixin
from core.harness.benchmark_harness import BaseBenchmark, BenchmarkConfig


class Rows(VerificationPayloadMixin, BaseBenchmark):
    def __init__(self):
        super().__init__()
        self.x = self.out = None

    def setup(self):
        torch.manual_seed(42)
        self.x = torch.randn({rows}, 512, device=self.device)
{setup}
    def benchmark_fn(self):
{work}

    def capture_verification_payload(self):
        self._set_verification_payload(inputs={{"x": self.x}}, output=self.out, batch_size=128)

    def get_custom_metrics(self):
        return {{"bytes": 4.0}}

    def get_optimization_goal(self):
        return "speed"

    def get_config(self):
        return BenchmarkConfig(iterations=10)

    def teardown(self):
        self.x = None


def get_benchmark():
    return Rows()
'''
_LOOP = "        for row in range(len(self.x)):\n            self.out[row] = self.x[row].sum()"
_BUFFER = "        self.out = torch.empty({rows}, device=self.device)\n"


def rows_class(work: str, setup: str = "", rows: int = 128) -> str:
    """The text of a class for the older harness."""
    return _CLASS.format(doc="Sum of rows.", work=work, setup=setup, rows=rows)


CLASSES = {
    "baseline_rows": rows_class(_LOOP, _BUFFER.format(rows=128)),
    "optimized_rows_honest": rows_class("        self.out = self.x.sum(dim=1)"),
    "optimized_rows_cheat_setup": rows_class("        self.out = self.y", "        self.y = self.x.sum(dim=1)\n"),
    "optimized_rows_cheat_nothing": rows_class("        pass", "        self.out = self.x.sum(dim=1)\n"),
    "optimized_rows_cheat_payload": rows_class("        self.out = self.x.sum(dim=1) * 0").replace(
        'inputs={"x": self.x}', 'inputs={"x": self.x.zero_()}'
    ),
    "baseline_scaled": rows_class("        self.out = (self.x * 2).sum(dim=1)", rows=96),
    "optimized_scaled_honest": rows_class("        self.out = self.x.sum(dim=1) * 2", rows=96),
}
DERIVED = rows_class("        self.out = self.y * 1", "        self.y = self.x.sum(dim=1)\n")
PYTEST = {
    "test_softmax": (
        '"""Softmax of rows."""\nimport numpy as np\n\n\ndef slow(x):\n'
        "    e = np.exp(x - x.max(axis=1, keepdims=True))\n    return e / e.sum(axis=1, keepdims=True)\n\n\n"
        "def quick(x):\n    y = x - x.max(axis=1, keepdims=True)\n    np.exp(y, out=y)\n"
        "    y /= y.sum(axis=1, keepdims=True)\n    return y\n\n\n"
        "def lazy(x, kept=[]):\n    kept.append(slow(x))\n    return kept[0]\n\n\n"
        "def test_baseline(benchmark):\n    benchmark(slow, np.random.default_rng(0).standard_normal((128, 256)))\n\n\n"
        "def test_honest(benchmark):\n    benchmark.pedantic(quick, args=(np.zeros((128, 256)),), rounds=5)\n\n\n"
        "def test_cheat_cached(benchmark):\n    benchmark(lazy, np.zeros((128, 256)))\n"
    ),
    "test_total": (
        "import torch\n\n\ndef loop(x, weight):\n    return torch.stack([(row * weight).sum() for row in x])\n\n\n"
        "def test_reference(benchmark):\n    result = benchmark(loop, torch.randn(64, 128), weight=2.0)\n"
        "    assert result.shape == (64,)\n\n\n"
        "def test_honest(benchmark):\n"
        "    benchmark(lambda x, weight: x.sum(dim=1) * weight, torch.randn(64, 128), weight=2.0)\n\n\n"
        "def test_cheat_zero(benchmark):\n"
        "    benchmark(lambda x, weight: torch.zeros(len(x)), torch.randn(64, 128), weight=2.0)\n\n\n"
        "def test_cheat_precision(benchmark):\n"
        "    benchmark(lambda x, weight: (x.half().sum(dim=1) * weight).float(), torch.randn(64, 128), weight=2.0)\n"
    ),
}
CLOSURE = "import torch\n\n\ndef test_it(benchmark):\n    x = torch.randn(64)\n    benchmark(lambda: x.sum())\n"
