"""The candidates of two commits as pairs of files, in which the base's candidate is the baseline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from aisp_mcp.errors import BenchmarkError, NotFound
from aisp_mcp.judge.native import build
from aisp_mcp.judge.pair import Pair
from aisp_mcp.judge.records.run import Failure, Skip
from aisp_mcp.runs.commits import Checkout
from aisp_mcp.suites import discovery

# Each runs in the processes of one commit, never together with the other. The base's specification defines inputs,
# tolerance and truth; only run() is the base candidate's.
BASE_SIDE = '''"""{summary}"""
import sys

sys.path.insert(0, {root!r})
from pathlib import Path

import torch

from aisp_mcp.bench import Benchmark
from aisp_mcp.judge.loading import common_of, load_candidate, load_common, load_module

load_common(common_of(Path({spec!r})))
_spec = load_module(Path({spec!r}), "aisp_gate_spec")
_side = load_candidate(Path({side!r}))
_class = next(v for v in vars(_spec).values() if isinstance(v, type) and issubclass(v, Benchmark)
              and v.__module__ == _spec.__name__)


class Shapes:
    """An rng whose tensors have no values: it tells which names are static."""

    device = "meta"

    def randn(self, *shape, dtype="float32", **_):
        return torch.empty(shape, dtype=getattr(torch, dtype), device="meta")

    rand = randn

    def randint(self, low, high, *shape, dtype="int64", **_):
        return self.randn(*shape, dtype=dtype)

    def permutation(self, n):
        return self.randn(n, dtype="int64")

    def bernoulli(self, p, *shape):
        return self.randn(*shape, dtype="bool")


class Base(_class):
    _static = _names = None

    def run(self, **tensors):
        prepare = getattr(_side, "prepare", None)
        if prepare is None:
            return _side.run(**tensors)
        if self._names is None:
            self._names = frozenset(self.params(Shapes()))
        inputs = {{k: v for k, v in tensors.items() if k not in self._names}}
        if self._static is None:
            params = {{k: v for k, v in tensors.items() if k in self._names}}
            self._static = dict(prepare(params, {{k: v.clone() for k, v in inputs.items()}}))
        return _side.run(**inputs, **self._static)

    def reference(self, **tensors):
        plain = _class()
        plain.__dict__.update(self.__dict__)
        return plain.reference(**tensors)
'''
HEAD_SIDE = '''"""{summary}"""
import sys

sys.path.insert(0, {root!r})
from pathlib import Path

from aisp_mcp.judge.loading import load_candidate

_side = load_candidate(Path({side!r}))
run = _side.run
if hasattr(_side, "prepare"):
    prepare = _side.prepare
'''


@dataclass(frozen=True)
class CandidateFiles:
    """One candidate at one commit: its specification's file and its own."""

    spec: Path
    path: Path
    summary: str


def find_candidates(checkout: Checkout, roots: Sequence[str], names: Sequence[str]) -> dict[str, CandidateFiles]:
    """The named candidates of a checkout by full name. Missing names are handled when both are compared."""
    candidates: dict[str, CandidateFiles] = {}
    folders = [checkout.folder / root for root in roots]
    for folder in filter(Path.is_dir, folders):
        for name in names:
            try:
                resolved = discovery.resolve(folder, [name])
            except NotFound:
                continue
            for target, variants in resolved:
                usable = [variant for variant in variants if not target.problem and not variant.problem]
                candidates |= {
                    discovery.full_name(target, variant): CandidateFiles(
                        Path(target.path), Path(variant.path), target.summary
                    )
                    for variant in usable
                }
    return candidates


def make_pairs(
    candidates: Mapping[str, tuple[CandidateFiles, CandidateFiles]],
    base: Checkout,
    head: Checkout,
    work: Path,
    device: str,
) -> tuple[list[Pair], list[Failure | Skip]]:
    """Pairs to measure, with C++ and CUDA candidates compiled, and those that cannot be measured.

    candidates: files at the base and at the head, by full name.
    """
    pairs, broken = list[Pair](), list[Failure | Skip]()
    for name, both in candidates.items():
        lacks = [build.lacks(files.path, device) for files in both if build.is_native(files.path)]
        if missing := next(filter(None, lacks), None):
            broken.append(Skip(target=name, code="NEEDS", missing=missing))
            continue
        try:
            at_base, at_head = (_compiled(name, files) for files in both)
        except BenchmarkError as error:
            broken.append(Failure(target=name, code=error.code, message=error.message, hint=error.hint))
            continue
        pairs.append(_write_pair(name, at_base, at_head, base, head, work))
    return pairs, broken


def have_same_spec(at_base: CandidateFiles, at_head: CandidateFiles) -> bool:
    """Return True if the specification did not change."""
    return at_base.spec.read_bytes() == at_head.spec.read_bytes()


def _compiled(name: str, files: CandidateFiles) -> CandidateFiles:
    return replace(files, path=build.prepared(Pair(name, files.spec, "", files.path))[0].path)


def _write_pair(
    name: str, at_base: CandidateFiles, at_head: CandidateFiles, base: Checkout, head: Checkout, work: Path
) -> Pair:
    folder = work / "pairs" / name.replace(":", "/")
    folder.mkdir(parents=True)
    spec, candidate = folder / "baseline_side.py", folder / "optimized_side.py"
    summary = at_base.summary.replace('"', "'").replace("\\", "")
    common = {"summary": summary, "spec": str(at_base.spec)}
    spec.write_text(BASE_SIDE.format(**common, root=str(base.folder), side=str(at_base.path)), "utf-8")
    candidate.write_text(HEAD_SIDE.format(**common, root=str(head.folder), side=str(at_head.path)), "utf-8")
    return Pair(name, spec, "", candidate)
