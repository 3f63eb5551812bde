"""Start a benchmark of your own."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from aisp_mcp.errors import Refused
from aisp_mcp.records import Params, Record
from aisp_mcp.server import files
from aisp_mcp.server.context import Context
from aisp_mcp.server.files import Written
from aisp_mcp.server.registry import MS, WRITES, tool

# The pair works as it is, and its comments say what to change.
_BASELINE = '''"""Distance of every point to its nearest neighbour: one point at a time."""

import torch

from aisp_mcp.bench import Benchmark


class {title}(Benchmark):
    # Sizes are class attributes: --size points=512 changes one. `small` is used on a CPU, the attributes on a GPU.
    points, dimensions = 2048, 16
    sizes = {{"small": {{"points": 600}}}}

    def inputs(self, rng):
        # New values for every call, from a secret seed: rng.randn, rand, randint, permutation, bernoulli.
        return {{"x": rng.randn(self.points, self.dimensions)}}

    def run(self, x):
        # The baseline, called with the inputs by name. It returns one tensor, or a tuple, list or dict of tensors.
        nearest = []
        for index, point in enumerate(x):
            distances = (x - point).square().sum(dim=1)
            distances[index] = torch.inf
            nearest.append(distances.min())
        return torch.stack(nearest)
'''
_CANDIDATE = '''"""The same, all points at once."""

import torch

# A candidate sees the inputs only when it is called: it defines run(), and nothing about sizes, tolerance or timing.
# Further candidates are further files: optimized_{name}_VARIANT.py, or .cpp and .cu files (docs/native.md).


def run(x):
    distances = (x[:, None] - x).square().sum(dim=2)
    return distances.fill_diagonal_(torch.inf).min(dim=1).values
'''


class NewParams(Params):
    name: str = Field(min_length=1, max_length=60, pattern=r"^[a-z][a-z0-9_]*$", description="Such as nearest.")
    to: str | None = Field(default=None, max_length=4096, description="Folder. Default: new/NAME under AISP_HOME.")


class NewPair(Record):
    """The files of a new pair, and the command that judges it."""

    files: list[Written]
    target: str
    command: str


@tool(cli="bench new", effect=WRITES, cost=MS, next=("aisp_run_benchmarks", "aisp_verify_candidate"))
def aisp_benchmark_new(p: NewParams, ctx: Context) -> NewPair:
    """Write a working pair of files with comments, baseline and candidate, to fill in with code of your own."""
    folder = files.folder(p.to, ctx.settings.home / "new" / p.name, ctx.allow_write)
    written = _write(folder, p.name)
    target = f"{folder.name}:{p.name}"
    root = "" if folder.parent.name == "benchmarks" else f" --bench-root {folder.parent}"
    return NewPair(files=written, target=target, command=f"aisp bench run --targets {target}{root}")


def _write(folder: Path, name: str) -> list[Written]:
    """Write both files. Raises Refused EXISTS for files that already exist, UNWRITABLE."""
    texts = {
        f"baseline_{name}.py": _BASELINE.format(title="".join(word.capitalize() for word in name.split("_"))),
        f"optimized_{name}.py": _CANDIDATE.format(name=name),
    }
    if present := next((folder / file for file in texts if (folder / file).exists()), None):
        raise Refused("EXISTS", f"{present} exists already.", "Choose another name, or another folder.")
    return [files.write(folder / file, text.encode()) for file, text in texts.items()]
