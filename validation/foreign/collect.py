"""Copy problems and candidates out of checkouts of other projects into one folder: a deck for run_deck.py.

python validation/foreign/collect.py --to DECK [--hard CHECKOUT --audit CSV] [--kernelbench CHECKOUT]
"""

from __future__ import annotations

import argparse
import ast
import csv
import json
import random
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from aisp_mcp.suites.adapters import base, kernelbench, runtime

# Appended to a problem's own text, they are candidates whose verdict is known.
OWN = {
    "identical": ("honest", "class ModelNew(Model):\n    pass\n"),
    "zeros": ("wrong", "{made}        return _each(out, torch.zeros_like)\n"),
    "scaled": (
        "wrong",
        "{made}        return _each(out, lambda one: one * 1.02 if one.is_floating_point() else one + 1)\n",
    ),
    "stale": (
        "wrong",
        "{made}        if not hasattr(self, '_stale'):\n            self._stale = out\n        return self._stale\n",
    ),
}
_MADE = (
    "import torch\n\n\ndef _each(out, change):\n"
    "    return type(out)(change(one) for one in out) if isinstance(out, (tuple, list)) else change(out)\n\n\n"
    "class ModelNew(Model):\n    def forward(self, *args):\n        out = super().forward(*args)\n"
)


def main() -> None:
    """Write the deck."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--to", type=Path, required=True)
    parser.add_argument("--hard", type=Path, help="checkout of kernelbench.com")
    parser.add_argument("--audit", type=Path, help="table of audited runs")
    parser.add_argument("--kernelbench", type=Path, help="checkout of KernelBench")
    parser.add_argument("--per-level", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    shutil.rmtree(args.to, ignore_errors=True)
    args.to.mkdir(parents=True)
    entries = list(hard(args.hard, args.audit, args.to)) if args.hard else []
    entries += kernelbench_levels(args.kernelbench, args.to, args.per_level, args.seed) if args.kernelbench else []
    (args.to / "deck.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    print(f"{len(entries)} entries in {args.to}")


def hard(checkout: Path, audit: Path, to: Path) -> Iterator[dict[str, Any]]:
    """Audited solutions of KernelBench-Hard, and for each problem the reference itself as a candidate."""
    problems = checkout / "benchmarks" / "hard" / "problems-h100"
    known = {folder.name for folder in problems.iterdir()}
    for name in sorted(known):
        folder = to / "hard" / name
        folder.mkdir(parents=True)
        for file in ("reference.py", "problem.yaml"):
            shutil.copy(problems / name / file, folder / file)
        shutil.copy(problems / name / "reference.py", folder / "solution_identical.py")
        shapes = kernelbench.shapes_of(problems / name / "shapes.py", base.parse(folder / "reference.py"))
        (folder / "shapes.json").write_text(json.dumps(shapes))
        yield _entry("hard", name, "identical", "honest", shapes)
    for row in csv.DictReader(audit.open()) if audit else ():
        name = row["problem"].split()[0]
        source = checkout / row["solution_path"]
        if row["bench"] != "hard" or name not in known or not source.is_file():
            continue
        candidate = base.identifier(row["run_id"].removesuffix(f"_{name}"))
        shutil.copy(source, to / "hard" / name / f"solution_{candidate}.py")
        yield _entry(
            "hard", name, candidate, row["human_verdict"], json.loads((to / "hard" / name / "shapes.json").read_text())
        )


def _entry(group: str, name: str, candidate: str, auditor: str, shapes: list[dict[str, Any]]) -> dict[str, Any]:
    files = {"reference": f"{group}/{name}/reference.py", "candidate": f"{group}/{name}/solution_{candidate}.py"}
    return {"group": group, "problem": name, "name": candidate, "auditor": auditor, "shapes": shapes, **files}


def kernelbench_levels(checkout: Path, to: Path, number: int, seed: int) -> Iterator[dict[str, Any]]:
    """A sample of each level, with candidates made of the problem's own text, and sizes reduced for a CPU."""
    for level in (1, 2, 3):
        files = sorted((checkout / "KernelBench" / f"level{level}").glob("*.py"))
        for file in sorted(random.Random(seed).sample(files, min(number, len(files)))):
            name = base.identifier(f"l{level}_{file.stem}")
            folder, text = to / f"level{level}" / name, file.read_text("utf-8")
            folder.mkdir(parents=True)
            (folder / "problem.py").write_text(text)
            for candidate, (auditor, own) in OWN.items():
                (folder / f"{candidate}.py").write_text(text + "\n\n" + own.format(made=_MADE))
                yield {
                    "group": f"level{level}",
                    "problem": name,
                    "name": candidate,
                    "auditor": auditor,
                    "shapes": [{}],
                    "reduced": reductions(ast.parse(text)),
                    "reference": f"level{level}/{name}/problem.py",
                    "candidate": f"level{level}/{name}/{candidate}.py",
                }


def reductions(tree: ast.Module) -> list[dict[str, Any]]:
    """Constants for a CPU, from the smallest to those that change the batch alone: a network may need its sizes."""
    sizes = {}
    for name, value in runtime.assigned(tree).items():
        with suppress(NameError, TypeError):  # of sizes that are derived from others
            sizes[name] = eval(compile(ast.Expression(value), "", "eval"), {"__builtins__": {}})
    caps = ((32, 4), (32, 32), (128, 4), (1 << 40, 4))  # of sizes in general, of a batch
    capped = [{name: _capped(name, value, *most) for name, value in sizes.items()} for most in caps]
    return [{name: value for name, value in row.items() if value != _listed(sizes[name])} for row in capped]


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _capped(name: str, value: Any, cap: int, batch: int) -> Any:
    """Halved until it is at most the cap, of which a batch has its own."""
    if isinstance(value, tuple | list):
        return [_capped(name, each, cap, batch) for each in value]
    if not isinstance(value, int) or re.search("eps|scal|factor|kernel|stride|pad", name):
        return value
    most = batch if "batch" in name else cap
    while value > most:
        value = (value + 1) // 2
    return value


if __name__ == "__main__":
    main()
