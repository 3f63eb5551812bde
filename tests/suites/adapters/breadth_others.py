"""Ten operators in each of the four other formats, with a candidate that computes the same. Written for these tests."""

from __future__ import annotations

import json
from pathlib import Path

F = "torch.nn.functional"
# name: (expression, {argument: (shape, dtype)}); integers are indices below the size of the first argument's last axis
TABLE: dict[str, tuple[str, dict[str, tuple[tuple[int, ...], str]]]] = {
    "product": ("a @ b.T", {"a": ((65, 97), "float32"), "b": ((33, 97), "float32")}),
    "rms": (
        "x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w",
        {"x": ((48, 128), "float32"), "w": ((128,), "float32")},
    ),
    "softmax": ("torch.softmax(x, dim=-1)", {"x": ((48, 257), "float32")}),
    "swiglu": (f"{F}.silu(a) * b", {"a": ((48, 96), "float32"), "b": ((48, 96), "float32")}),
    "attention": (
        "torch.softmax(q @ k.transpose(-2, -1) / 4, dim=-1) @ v",
        {name: ((2, 3, 33, 16), "float32") for name in "qkv"},
    ),
    "convolution": (f"{F}.conv2d(x, w, padding=1)", {"x": ((2, 3, 17, 19), "float32"), "w": ((4, 3, 3, 3), "float32")}),
    "scan": ("x.cumsum(-1)", {"x": ((16, 301), "float32")}),
    "pick": ("x.gather(1, at)", {"x": ((48, 100), "float32"), "at": ((48, 20), "int64")}),
    "half": ("(x * 2 + y).relu()", {"x": ((64, 96), "bfloat16"), "y": ((64, 96), "bfloat16")}),
    "pool": (f"{F}.avg_pool1d(x, 3)", {"x": ((2, 6, 130), "float32")}),
}


def _drawn(shape: tuple[int, ...], dtype: str, limit: int, more: str = "") -> str:
    if dtype == "int64":
        return f"torch.randint(0, {limit}, {shape}{more})"
    return f"torch.randn({shape}{more})" + ("" if dtype == "float32" else f".to(torch.{dtype})")


def _all(name: str, more: str = "") -> str:
    inputs = TABLE[name][1]
    limit = next(iter(inputs.values()))[0][-1]
    return ", ".join(_drawn(shape, dtype, limit, more) for shape, dtype in inputs.values())


def _function(name: str, called: str) -> str:
    expression, inputs = TABLE[name]
    return f"import torch\n\n\ndef {called}({', '.join(inputs)}):\n    return {expression}\n"


def flashinfer(folder: Path, name: str) -> Path:
    """One definition of a data set: folders definitions, workloads and solutions."""
    _, inputs = TABLE[name]
    axes = {f"{each}{at}": size for each, (shape, _) in inputs.items() for at, size in enumerate(shape)}
    named = {value: {"shape": [f"{value}{at}" for at in range(len(s))], "dtype": d} for value, (s, d) in inputs.items()}
    reference = _function(name, "run")
    custom = {value: {"type": "custom" if d == "int64" else "random"} for value, (_, d) in inputs.items()}
    if "at" in inputs:
        reference += "\n\ndef make(axes, device):\n"
        reference += "    return {'at': torch.randint(0, axes['x1'], (axes['at0'], axes['at1']), device=device)}\n"
    definition = {
        "name": name,
        "op_type": "single",
        "axes": {axis: {"type": "const", "value": size} for axis, size in axes.items()},
        "inputs": named,
        "outputs": {"out": {"shape": [], "dtype": "float32"}},
        "reference": reference,
        "custom_inputs_entrypoint": "make",
    }
    workload = {"definition": name, "workload": {"uuid": name, "axes": {}, "inputs": custom}}
    spec = {"language": "python", "entry_point": "main.py::run", "destination_passing_style": False}
    sources = [{"path": "main.py", "content": _function(name, "run")}]
    solution = {"name": "same", "definition": name, "spec": spec, "sources": sources}
    for place, text in (
        (f"definitions/single/{name}.json", json.dumps(definition)),
        (f"workloads/single/{name}.jsonl", json.dumps(workload)),
        (f"solutions/single/{name}_same.json", json.dumps(solution)),
    ):
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_text(text)
    return folder


def gpumode(folder: Path, name: str) -> Path:
    """A folder with task.yml, reference.py and a submission."""
    expression, inputs = TABLE[name]
    (folder / name).mkdir(parents=True)
    unpacked = f"    {', '.join(inputs)}{',' * (len(inputs) == 1)} = data\n    return {expression}\n"
    drawn = _all(name, ", generator=gen, device='cuda'")
    (folder / name / "reference.py").write_text(
        f"import torch\nfrom task import input_t\n\n\ndef ref_kernel(data: input_t):\n{unpacked}\n\n"
        "def generate_input(size: int, seed: int) -> input_t:\n    gen = torch.Generator(device='cuda')\n"
        f"    gen.manual_seed(seed)\n    return {drawn},\n"
    )
    (folder / name / "submission.py").write_text(f"import torch\n\n\ndef custom_kernel(data):\n{unpacked}")
    (folder / name / "task.py").write_text("input_t = tuple\n")
    (folder / name / "task.yml").write_text(
        'files:\n  - {"name": "task.py", "source": "task.py"}\nlang: "py"\ndescription: One operator.\n'
        'tests:\n  - {"size": 1, "seed": 1}\nbenchmarks:\n  - {"size": 2, "seed": 2}\n'
    )
    return folder / name


def classes(folder: Path, name: str) -> Path:
    """baseline_ and optimized_ files with get_benchmark()."""
    expression, inputs = TABLE[name]
    mine = ", ".join(f"self.{tensor}" for tensor in inputs)
    text = (
        "import torch\nfrom core.harness.benchmark_harness import BaseBenchmark\n\n\n"
        "class One(BaseBenchmark):\n    def setup(self):\n        torch.manual_seed(42)\n"
        f"        {mine}, = {_all(name)},\n\n"
        f"    def benchmark_fn(self):\n        {', '.join(inputs)}, = {mine},\n        self.out = {expression}\n\n"
        "    def capture_verification_payload(self):\n        self._set_verification_payload(inputs={"
        + ", ".join(f"'{tensor}': self.{tensor}" for tensor in inputs)
        + "}, output=self.out)\n\n\ndef get_benchmark():\n    return One()\n"
    )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"baseline_{name}.py").write_text(text)
    (folder / f"optimized_{name}_same.py").write_text(text)
    return folder


def pytest_benchmark(folder: Path, name: str) -> Path:
    """One module with a baseline and another test of the same function."""
    calls = "".join(
        f"\n\ndef test_{kind}(benchmark):\n    benchmark({name}, {_all(name)})\n" for kind in ("baseline", "same")
    )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"test_{name}.py").write_text(_function(name, name) + calls)
    return folder


WRITERS = {
    "flashinfer": flashinfer,
    "gpumode": gpumode,
    "get_benchmark": classes,
    "pytest_benchmark": pytest_benchmark,
}
