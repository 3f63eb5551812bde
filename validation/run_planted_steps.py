"""Predict what planted kernels change in the steps of three small models, and measure it.

    python validation/run_planted_steps.py [--steps 25] [--kernels 10] [--device cuda] > planted-steps.json

Each model calls one operator at two sizes through a function of its own (on a GPU there is one model).
The package's recorder captures the model; each of ten other kernels for that operator is judged by `compare` at the
recorded sizes, and the workload's ratio and the operator's share of the step predict the step. Then every kernel takes
the function's place: in one process, which uses nothing of the package, a step with each is timed beside one with the
function, in both orders. The median of these ratios is what was measured. The clock is the processor time of the only
thread, which other work on the machine disturbs least; on a GPU, the device's events around ten steps.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from aisp_mcp.judge import compare
from aisp_mcp.judge.functions import sources
from aisp_mcp.judge.verdict import endtoend
from aisp_mcp.judge.verdict import workload as rule
from aisp_mcp.judge.verdict.workload import Measured
from aisp_mcp.profile.recording import record
from aisp_mcp.runs.workload import reading

VISIBLE = 0.02  # smaller changes of a step have no sign that steps on a shared machine could show
NEAR = 0.2

# Per model: the operator, its function, ten other kernels, and the model around it.
TRANSFORMER = """
import torch, ops
torch.manual_seed(0); torch.set_num_threads(1)
D, H, T = 256, 4, 256
W = {n: torch.randn(*s) / 16 for n, s in {"qkv": (D, 3 * D), "o": (D, D), "up": (D, 4 * D), "down": (4 * D, D)}.items()}
x = torch.randn(T, D)
def norm(y):
    return (y - y.mean(-1, keepdim=True)) * torch.rsqrt(ops.f(y) + 1e-5)
def step():
    y = x
    for _ in range(3):
        q, k, v = (norm(y) @ W["qkv"]).view(T, 3, H, D // H).permute(1, 2, 0, 3)
        y = y + torch.nn.functional.scaled_dot_product_attention(q, k, v).transpose(0, 1).reshape(T, D) @ W["o"]
        y = y + norm(torch.relu(norm(y) @ W["up"])) @ W["down"]
    return y
"""
CONVOLUTIONS = """
import torch, ops
torch.manual_seed(0); torch.set_num_threads(1)
conv = torch.nn.functional.conv2d
A, B, C = torch.randn(16, 3, 3, 3) / 5, torch.randn(32, 16, 3, 3) / 12, torch.randn(32, 32, 3, 3) / 17
x = torch.randn(8, 3, 32, 32)
def step():
    y = conv(x, A, padding=1)
    y = y / (1 + ops.f(y)).sqrt()
    y = conv(y, B, padding=1, stride=2)
    y = y / (1 + ops.f(y)).sqrt()
    return conv(y, C, padding=1).mean((2, 3))
"""
PERCEPTRON = """
import torch, ops
torch.manual_seed(0); torch.set_num_threads(1)
A, B, C = torch.randn(512, 1024) / 22, torch.randn(1024, 512) / 32, torch.randn(512, 10) / 22
x = torch.randn(128, 512)
def winners(y, k):
    return y * (y >= ops.f(y)[:, -k:][:, :1])
def step():
    return winners(winners(x @ A, 128) @ B, 64) @ C
"""
DECODER = """
import torch, ops
torch.manual_seed(0); torch.set_default_device("cuda"); torch.set_float32_matmul_precision("high")
D, H, T, N = 512, 4, 256, 256
W = {n: torch.randn(*s) / 22 for n, s in {"qkv": (D, 3 * D), "o": (D, D), "up": (D, 4 * D), "down": (4 * D, D)}.items()}
x = torch.randn(N * T, D)
def norm(y):
    return (y - y.mean(-1, keepdim=True)) * torch.rsqrt(ops.f(y) + 1e-5)
@torch.inference_mode()
def step():
    y = x
    for rows in (N, N // 8):  # a batch, and the part of it that is not yet done
        y = y[: rows * T]
        q, k, v = (norm(y) @ W["qkv"]).view(rows, T, 3, H, D // H).permute(2, 0, 3, 1, 4)
        seen = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        y = y + seen.transpose(1, 2).reshape(rows * T, D) @ W["o"]
        y = y + torch.relu(norm(y) @ W["up"]) @ W["down"]
    return y
"""
ANY = ["B(x); return B(x)", "B(x); B(x); return B(x)", "return B(x.clone())",
       "return torch.cat([B(part) for part in x.chunk(8)])", "return B(x.double()).float()"]  # fmt: skip
MODELS: dict[str, tuple[str, str, str, list[str]]] = {
    "transformer": ("aten::var", "return x.var(-1, unbiased=False, keepdim=True)", TRANSFORMER, [
        "d = x - x.mean(-1, keepdim=True); return (d * d).mean(-1, keepdim=True)",
        "return (x - x.mean(-1, keepdim=True)).square().mean(-1, keepdim=True)",
        "return torch.from_numpy(np.var(x.numpy(), -1, keepdims=True))",
        "return x.std(-1, unbiased=False, keepdim=True).square()",
        "return torch.var_mean(x, -1, unbiased=False, keepdim=True)[0]",
    ]),
    "convolutions": ("aten::pow", "return x.pow(4)", CONVOLUTIONS, [
        "return x * x * x * x", "y = x * x; return y * y", "return x.square().square()", "y = x * x; y *= y; return y",
        "return x.pow(2).pow(2)",
    ]),
    "perceptron": ("aten::sort", "return x.sort(-1).values", PERCEPTRON, [
        "return torch.from_numpy(np.sort(x.numpy(), -1))",
        "return torch.from_numpy(np.sort(x.numpy(), -1, kind='stable'))",
        "return x.topk(x.shape[-1], -1).values.flip(-1)", "return torch.sort(x, dim=-1, stable=True).values",
        "return x.gather(-1, x.argsort(-1))",
    ]),
}  # fmt: skip
ON_GPU: dict[str, tuple[str, str, str, list[str]]] = {
    "decoder": ("aten::var", "return x.var(-1, unbiased=False, keepdim=True)", DECODER, [
        "d = x - x.mean(-1, keepdim=True); return (d * d).mean(-1, keepdim=True)",
        "return (x - x.mean(-1, keepdim=True)).square().mean(-1, keepdim=True)",
        "return x.std(-1, unbiased=False, keepdim=True).square()",
        "return torch.var_mean(x, -1, unbiased=False, keepdim=True)[0]",
        "return torch.native_layer_norm(x, x.shape[-1:], None, None, 0.0)[2].pow(-2)",
    ]),
}  # fmt: skip
HEAD = "import numpy as np\nimport torch\n"
# Long enough that others on the machine interrupt the operator no more often than the rest of the step.
RECORDED = """
import time
import model
begin = time.monotonic()
while time.monotonic() < begin + 3:
    model.step()
"""
TURNS = """
import json, sys, time
import model, ops
kernels = [__import__(name).f for name in sys.argv[2].split(",")]
ratios, seconds = [[] for _ in kernels], []
def on_cpu():
    begin = time.process_time(); model.step()
    return time.process_time() - begin
def on_gpu():
    import torch
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(10): model.step()
    end.record(); end.synchronize()
    return begin.elapsed_time(end) / 1e4
def timed(at):
    ops.f = kernels[at]
    model.step()  # caches that the kernel before has left are of no use to this one
    return (on_gpu if sys.argv[3] == "cuda" else on_cpu)()
for turn in range(int(sys.argv[1])):
    for at in range(1, len(kernels)):
        pair = {which: timed(which) for which in ((0, at) if turn % 2 else (at, 0))}
        ratios[at].append(pair[0] / pair[at])
        seconds.append(pair[0])
print(json.dumps([seconds, *ratios[1:]]))
"""


def kernel(body: str, baseline: str) -> str:
    """The file of a kernel, which may call the baseline as B."""
    own = f"def B(x):\n    {baseline}\n\n\n" if "B(" in body else ""
    return f"{HEAD}\n\n{own}def f(x):\n" + "".join(f"    {line.strip()}\n" for line in body.split(";"))


def run(name: str, folder: Path, steps: int, kernels: int) -> dict[str, Any]:
    """All kernels of one model."""
    operator, baseline, model, own = (MODELS | ON_GPU)[name]
    files = {"model": model, "ops": kernel(baseline, ""), "recorded": RECORDED, "turns": TURNS}
    bodies = [body for pair in zip(own, ANY, strict=True) for body in pair][:kernels]
    files |= {f"kernel{at}": kernel(body, baseline) for at, body in enumerate(bodies)}
    for stem, text in files.items():
        (folder / f"{stem}.py").write_text(text)
    (folder / "capture").mkdir()
    trace, _ = record.torch(str(folder / "recorded.py"), [], folder / "capture", "full", sys.executable, 300.0)
    function = sources.one(str(folder / "ops.py:f"))
    read = reading.read(f"{trace}:{operator}", [], function.parameters, "f")
    names = ",".join(["ops", *(f"kernel{at}" for at in range(len(bodies)))])
    turns = [sys.executable, "turns.py", str(steps), names, "cuda" if name in ON_GPU else "cpu"]
    done = subprocess.run(turns, cwd=folder, capture_output=True, text=True, check=True)
    seconds, *ratios = json.loads(done.stdout)
    rows = []
    for at, body in enumerate(bodies):
        row = {"model": name, "kernel": body, "measured": statistics.median(ratios[at])}
        row["measured_interval"] = middle(ratios[at])
        rows.append(row | predicted(folder, at, read))
        print(rows[-1], file=sys.stderr, flush=True)
    return {
        "model": name,
        "operator": operator,
        "share": read.step_share,
        "step_s": statistics.median(seconds),
        "kernels": rows,
    }


def predicted(folder: Path, at: int, read: reading.Read) -> dict[str, Any]:
    """The workload's ratio at the recorded sizes, and the step's by the operator's share. Where the parent's clock
    proves only a bound, which predicts nothing, the worker's own clock is believed: it is that of an honest kernel.
    """
    measured = []
    for row in read.rows:
        shape = row.label[1 : row.label.index("]")]
        compared = compare(
            str(folder / "ops.py:f"), str(folder / f"kernel{at}.py:f"), f"x=randn({shape})", preset="quick"
        )
        if compared.ratio is None:
            return {"alone": None, "predicted": None, "said": compared.sentence}
        if compared.at_least and compared.clocks:
            compared = compared.model_copy(update={"ratio": compared.clocks.ratio_worker})
        measured.append(Measured(row.label, row.launches, row.recorded_s or 0.0, compared))
    verdict = rule.judge("trace", measured, read.step_share)
    sides = (verdict.interval.low, verdict.interval.high) if verdict.interval else (None, None)
    return {
        "alone": verdict.ratio,
        "predicted": endtoend.predict(read.step_share, verdict.ratio),
        "predicted_interval": [endtoend.predict(read.step_share, side) for side in sides],
    }


def middle(ratios: list[float]) -> list[float]:
    """The 95 % interval of the median, by its order statistics (the normal approximation of the binomial)."""
    count, ordered = len(ratios), sorted(ratios)
    below = max(math.floor(count / 2 - 0.98 * math.sqrt(count)), 0)
    return [ordered[below], ordered[count - 1 - below]]


def is_shown(interval: list[float | None]) -> bool:
    """Return True if the interval excludes 1."""
    low, high = interval
    return low is not None and high is not None and not low <= 1 <= high


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Numbers of kernels whose signs agree, where a change is visible and where both intervals exclude 1, and whose
    predictions are near.
    """
    known = [row for row in rows if row["predicted"]]
    shown = [row for row in known if is_shown(row["measured_interval"]) and is_shown(row["predicted_interval"])]
    pairs = [(math.log(row["predicted"]), math.log(row["measured"])) for row in known]
    visible = [(a, b) for a, b in pairs if max(abs(a), abs(b)) >= VISIBLE]
    return {
        "kernels": len(rows), "judged": len(known), "visible": len(visible),
        "sign_agrees": sum(a * b > 0 for a, b in visible),
        "both_shown": len(shown),
        "shown_sign_agrees": sum((row["predicted"] > 1) == (row["measured"] > 1) for row in shown),
        "step_within_20_percent": sum(abs(math.expm1(a - b)) <= NEAR for a, b in pairs),
        "change_within_20_percent": sum(abs(a - b) <= max(NEAR * abs(b), VISIBLE) for a, b in visible),
    }  # fmt: skip


def main() -> int:
    """Print the record as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=25)
    parser.add_argument("--kernels", type=int, default=10, help="of each model")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    options = parser.parse_args()
    begin, found = time.monotonic(), []
    for name in ON_GPU if options.device == "cuda" else MODELS:
        with tempfile.TemporaryDirectory() as folder:
            found.append(run(name, Path(folder), options.steps, options.kernels))
    rows = [row for each in found for row in each["kernels"]]
    record_of = {"summary": summary(rows), "seconds": round(time.monotonic() - begin), "models": found}
    json.dump(record_of, sys.stdout, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
