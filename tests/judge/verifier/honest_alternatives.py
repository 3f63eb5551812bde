"""Honest alternatives of common reductions, judged by the contract many times: none may be accused.

python honest_alternatives.py [DRAWS] [OPERATION...]: prints accusations by operation, type and alternative as JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F

from aisp_mcp.bench import Benchmark
from aisp_mcp.judge.mutants.trial import Call, Trial

ROWS, WIDTH = 64, 1024
DTYPES = ("float32", "float16", "bfloat16")


def wide(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function in float32, rounded at the end."""
    return lambda x, *more: function(x.float(), *(one.float() for one in more)).to(x.dtype)


def online_log_sum_exp(x: Any) -> Any:
    most, total = torch.full((len(x),), -torch.inf), torch.zeros(len(x))
    for part in x.split(128, 1):
        now = torch.maximum(most, part.amax(1))
        total = total * (most - now).exp() + (part - now[:, None]).exp().sum(1)
        most = now
    return total.log() + most


def online_softmax(x: Any) -> Any:
    return (x - online_log_sum_exp(x)[:, None]).exp()


def flash(q: Any, k: Any, v: Any) -> Any:
    """Attention over blocks of keys with a running maximum."""
    most, total, result = torch.full((len(q), 1), -torch.inf), torch.zeros(len(q), 1), torch.zeros_like(q)
    for keys, values in zip(k.split(32), v.split(32), strict=True):
        scores = q @ keys.T / q.shape[1] ** 0.5
        now = torch.maximum(most, scores.amax(1, keepdim=True))
        weights, old = (scores - now).exp(), (most - now).exp()
        total, result, most = total * old + weights.sum(1, keepdim=True), result * old + weights @ values, now
    return result / total


def eager(q: Any, k: Any, v: Any) -> Any:
    return torch.softmax(q @ k.T / q.shape[1] ** 0.5, 1) @ v


def split_product(x: Any, w: Any) -> Any:
    return sum(a @ b for a, b in zip(x.split(128, 1), w.split(128, 0), strict=True))


def rms(x: Any, w: Any) -> Any:
    return x * torch.rsqrt(x.square().mean(1, keepdim=True) + 1e-6) * w


def narrow_rms(x: Any, w: Any) -> Any:
    return x * torch.rsqrt(x.float().square().mean(1, keepdim=True) + 1e-6).to(x.dtype) * w


def layer_norm(x: Any, w: Any) -> Any:
    return F.layer_norm(x, x.shape[1:], w)


def welford(x: Any, w: Any) -> Any:
    """Layer norm whose moments are merged from those of parts."""
    count, mean, spread = 0, torch.zeros(len(x), 1), torch.zeros(len(x), 1)
    for part in x.split(128, 1):
        size, middle = part.shape[1], part.mean(1, keepdim=True)
        delta = middle - mean
        spread = spread + (part - middle).square().sum(1, keepdim=True) + delta.square() * count * size / (count + size)
        mean, count = mean + delta * size / (count + size), count + size
    return (x - mean) * torch.rsqrt(spread / count + 1e-5) * w


def one(x: Any) -> dict[str, Any]:
    return {"x": x(ROWS, WIDTH)}


def weighted(x: Any) -> dict[str, Any]:
    return {"x": x(ROWS, WIDTH), "w": x(WIDTH)}


def operands(x: Any) -> dict[str, Any]:
    return {"x": x(ROWS, WIDTH), "w": x(WIDTH, 96)}


def heads(x: Any) -> dict[str, Any]:
    return {"q": x(ROWS, 64), "k": x(128, 64), "v": x(128, 64)}


# By operation: its inputs, the baseline, and the alternatives.
OPERATIONS: dict[str, tuple[Any, Callable[..., Any], dict[str, Callable[..., Any]]]] = {
    "log_sum_exp": (
        one,
        wide(lambda x: torch.logsumexp(x, 1)),
        {
            "online": wide(online_log_sum_exp),
            "library": lambda x: torch.logsumexp(x, 1),
            "split": wide(lambda x: torch.logsumexp(torch.logsumexp(x.view(len(x), 8, -1), 2), 1)),
        },
    ),
    "softmax": (
        one,
        wide(lambda x: torch.softmax(x, 1)),
        {"online": wide(online_softmax), "library": lambda x: torch.softmax(x, 1)},
    ),
    "mean": (
        one,
        wide(lambda x: x.mean(1)),
        {
            "split": wide(lambda x: x.view(len(x), 8, -1).sum(2).sum(1) / x.shape[1]),
            "library": lambda x: x.mean(1),
            "product": wide(lambda x: x @ torch.full((x.shape[1],), 1 / x.shape[1])),
        },
    ),
    "variance": (
        one,
        wide(lambda x: x.var(1)),
        {
            "library": lambda x: x.var(1),
            "moments": wide(lambda x: (x - x.mean(1, keepdim=True)).square().sum(1) / (x.shape[1] - 1)),
        },
    ),
    "sum_over_rows": (
        one,
        wide(lambda x: x.sum(0)),
        {"library": lambda x: x.sum(0), "backwards": wide(lambda x: x.flip(0).cumsum(0)[-1])},
    ),
    "rms_norm": (
        weighted,
        wide(rms),
        {"factor_in_the_type": narrow_rms, "library": lambda x, w: F.rms_norm(x, (WIDTH,), w, 1e-6), "eager": rms},
    ),
    "layer_norm": (weighted, wide(layer_norm), {"library": layer_norm, "merged_moments": wide(welford)}),
    "product": (operands, wide(torch.matmul), {"library": torch.matmul, "split_k": wide(split_product)}),
    "attention": (
        heads,
        wide(eager),
        {
            "blocks_of_keys": wide(flash),
            "library": lambda q, k, v: F.scaled_dot_product_attention(q[None], k[None], v[None])[0],
        },
    ),
    "gated": (
        weighted,
        wide(lambda x, w: x * torch.sigmoid(0.1 * (x * w).mean(1, keepdim=True))),
        {"product": wide(lambda x, w: x * torch.sigmoid(x @ (0.1 / WIDTH * w)[:, None]))},
    ),
}


def benchmark(name: str, dtype: str) -> Benchmark:
    """The operation as a specification."""
    inputs, run, _ = OPERATIONS[name]
    body = {
        "inputs": lambda self, rng: inputs(lambda *shape: rng.randn(*shape, dtype=dtype)),
        "run": lambda self, **tensors: run(*tensors.values()),
        "reference": lambda self, **tensors: run(*tensors.values()),
    }
    made: Benchmark = type("Operation", (Benchmark,), body)()
    return made


def programs(name: str, compiled: bool) -> Iterator[tuple[str, Callable[..., Any]]]:
    """The alternatives, and on request the baseline compiled."""
    alternatives = dict(OPERATIONS[name][2])
    if compiled:
        alternatives["compiled"] = torch.compile(OPERATIONS[name][1])
    for words, alternative in alternatives.items():
        yield words, lambda alternative=alternative, **tensors: alternative(*tensors.values())


def accusations(name: str, dtype: str, draws: int, compiled: bool = False) -> dict[str, tuple[int, float, str | None]]:
    """By alternative: the accusations in so many plain draws, the worst error, and the first message."""
    trial, by_name = Trial(benchmark(name, dtype)), {}
    chosen = list(programs(name, compiled))
    for draw in range(draws):
        for number, (words, program) in enumerate(chosen):
            judged = trial.judge(number, program, Call(7919 * draw + 13, "plain"))
            count, worst, first = by_name.get(words, (0, 0.0, None))
            by_name[words] = (count + bool(judged.failure), max(worst, judged.error), first or judged.failure)
    return by_name


def main() -> None:
    draws, *names = sys.argv[1:] or ["200"]
    torch.set_num_threads(1)
    for name in names or OPERATIONS:
        for dtype in DTYPES:
            print(
                json.dumps({"operation": name, "dtype": dtype, "found": accusations(name, dtype, int(draws), True)}),
                flush=True,
            )


if __name__ == "__main__":
    main()
