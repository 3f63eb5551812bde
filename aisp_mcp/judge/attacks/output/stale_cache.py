"""Stale Cache.

What happens: Results are kept by address, object, contents or a sample of the contents.
Why it lies: Repeated questions cost nothing, and a benchmark that repeats its questions measures a lookup.
What we do: New contents in the same memory and secret inputs for every call.
Limits: Caches of static parameters are legitimate.

Attacks: Answers found by address, by contents or by a sample of the contents.
"""

from aisp_mcp.judge.attacks.base import Issue, Undefended, attack, honest
from aisp_mcp.judge.attacks.baselines import LONG_SUM, MATMUL_RELU
from aisp_mcp.judge.attacks.snippets import NATIVE_PRODUCT

ABOUT = Issue(id=9, kind="B", undefended=Undefended(292, "one process", "cpu"), executed_on=("cpu",))

CASES = (
    attack("cache_by_address", MATMUL_RELU)("""
import torch

known = {}

def run(x, w):
    key = x.data_ptr(), w.data_ptr()
    if key not in known:
        known[key] = torch.relu(x @ w)
    return known[key]
"""),
    attack("cache_by_object", MATMUL_RELU)("""
import torch

known = {}

def run(x, w):
    if id(x) not in known:
        known[id(x)] = x, torch.relu(x @ w)
    return known[id(x)][1]
"""),
    attack("cache_by_contents", MATMUL_RELU)("""
import torch

known = {}

def run(x, w):
    key = hash(x.numpy().tobytes())
    if key not in known:
        known[key] = torch.relu(x @ w)
    return known[key]
"""),
    attack("cache_by_a_few_signs", MATMUL_RELU)("""
import torch

known = {}

def run(x, w):
    key = tuple((x[::128, 0] > 0).tolist())
    if key not in known:
        known[key] = torch.relu(x @ w)
    return known[key]
"""),
    attack("only_the_first_call_of_a_round", MATMUL_RELU)("""
import sys, torch

last = []

def run(x, w):
    frame = sys._getframe(1)
    while "durations" not in frame.f_locals:
        frame = frame.f_back
    if frame.f_locals["call"] in (0, frame.f_locals["count"] - 1):
        last[:] = [torch.relu(x @ w)]
    return last[0]
"""),
    honest("weights_packed_in_prepare", MATMUL_RELU)("""
import torch

def prepare(params, example):
    return {"packed": params["w"].t().contiguous()}

def run(x, packed):
    return torch.relu(torch.nn.functional.linear(x, packed))
"""),
    honest("weights_packed_at_the_first_call", MATMUL_RELU)("""
import torch

packed = {}

def run(x, w):
    if w.data_ptr() not in packed:
        packed[w.data_ptr()] = w.t().contiguous()
    return torch.relu(torch.nn.functional.linear(x, packed[w.data_ptr()]))
"""),
    # What depends on the shape alone may be kept.
    honest("vector_kept_per_shape", LONG_SUM)("""
import torch

ones = {}

def run(x):
    if x.shape not in ones:
        ones[x.shape] = torch.ones(x.shape[1] // 256)
    return (x.view(8, 256, -1) @ ones[x.shape]).sum(1)
"""),
    attack("native_cache_by_address", MATMUL_RELU, before=NATIVE_PRODUCT, suffix=".cpp", needs=("g++",))("""
    static std::map<const float*, std::vector<float>> known;
    auto& kept = known[x];
    if (kept.empty()) {
        rows(x, w, y, 0, m, inner, n);
        kept.assign(y, y + m * n);
    }
    std::memcpy(y, kept.data(), kept.size() * sizeof(float));
    return 0;
}
"""),
    honest("native_buffer_by_address", MATMUL_RELU, before=NATIVE_PRODUCT, suffix=".cpp", needs=("g++",))("""
    static std::map<const float*, std::vector<float>> buffers;
    auto& buffer = buffers[x];
    buffer.resize(m * n);
    rows(x, w, buffer.data(), 0, m, inner, n);
    std::memcpy(y, buffer.data(), buffer.size() * sizeof(float));
    return 0;
}
"""),
)
