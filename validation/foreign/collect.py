"""Copy problems and candidates out of checkouts of other projects into one folder: a deck for run_deck.py.

python validation/foreign/collect.py --to DECK [--hard CHECKOUT --audit CSV [--as-audited]] [--kernelbench CHECKOUT]
    [--multikernel CHECKOUT] [--cuda-l1 CHECKOUT] [--gpumode CHECKOUT] [--traces CHECKOUT ...] [--operators]
"""

from __future__ import annotations

import argparse
import ast
import csv
import json
import math
import random
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import known_candidates as known
import operators
import yaml

from aisp_mcp.errors import BenchmarkError
from aisp_mcp.judge.candidate import adapted
from aisp_mcp.suites.adapters import base, kernelbench

# How kernelbench.com writes a file that a solution loads below the solution.
SIDECAR = re.compile(r"^# =+\n# =+ sidecar: (\S+) \(.*\) =+\n# =+\n", re.MULTILINE)
DECKS = ("problems", "problems-rtxpro6000", "problems-h100")  # of one benchmark: the same problems for several GPUs
AUDITORS_ZONE = "-06:00"  # of the times in the names of their runs
OF_KERNELBENCH = (
    "activation",
    "arch",
    "convolution",
    "fuse",
    "loss",
    "matmul",
    "normalization",
    "pooling",
)  # categories
MOST_ELEMENTS = 1 << 20  # of a case for a CPU
# What a program contains that compiles for GPUs.
FOR_GPUS = re.compile("load_inline|cpp_extension|__global__|triton|cupy|numba")
SMALL_AXES = (16, 4, 64)  # in this order
Entry = dict[str, Any]


def main() -> None:
    """Write the deck."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--to", type=Path, required=True)
    parser.add_argument("--hard", type=Path, help="checkout of kernelbench.com")
    parser.add_argument("--audit", type=Path, help="table of audited runs")
    parser.add_argument("--as-audited", action="store_true", help="each run with its problem as it was that day")
    parser.add_argument("--kernelbench", type=Path, help="checkout of KernelBench")
    parser.add_argument("--per-level", type=int, default=30)
    parser.add_argument("--multikernel", type=Path, help="checkout of MultiKernelBench")
    parser.add_argument("--cuda-l1", type=Path, help="checkout of CUDA-L1")
    parser.add_argument("--published-for", default="", help="such as h100: all that CUDA-L1 published for that GPU")
    parser.add_argument("--gpumode", type=Path, help="checkout of reference-kernels")
    parser.add_argument("--traces", type=Path, nargs="*", default=[], help="checkouts with FlashInfer-Trace problems")
    parser.add_argument("--operators", action="store_true", help="ten operators with candidates of Liger-Kernel")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    shutil.rmtree(args.to, ignore_errors=True)
    args.to.mkdir(parents=True)
    collected = as_audited if args.as_audited else hard
    entries = list(collected(args.hard, args.audit, args.to)) if args.hard else []
    entries += kernelbench_levels(args.kernelbench, args.to, args.per_level, args.seed) if args.kernelbench else []
    entries += multikernel(args.multikernel, args.to) if args.multikernel else []
    entries += cuda_l1(args.cuda_l1, args.published_for, args.to) if args.cuda_l1 else []
    entries += gpumode(args.gpumode, args.to) if args.gpumode else []
    for checkout in args.traces:
        entries += traces(checkout, args.to)
    entries += ten_operators(args.to) if args.operators else []
    (args.to / "deck.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    print(f"{len(entries)} problems, {sum(len(entry['candidates']) for entry in entries)} candidates in {args.to}")


def entry(group: str, name: str, path: Path, to: Path, **more: Any) -> Entry:
    """One problem of the deck; candidates: auditor's verdict by file name."""
    given = {"format": "kernelbench", "shapes": [{}], "reduced": [], "candidates": {}, **more}
    return {"group": group, "problem": name, "path": str(path.relative_to(to)), **given}


def hard(checkout: Path, audit: Path, to: Path) -> Iterator[Entry]:
    """KernelBench-Hard, -CUDA and -Mini: audited solutions, and for each problem the reference itself."""
    audited = list(csv.DictReader(audit.open())) if audit else []
    for group in ("hard", "cuda", "mini"):
        yield from audited_problems(checkout, audited, to, group)


def audited_problems(checkout: Path, audited: list[dict[str, str]], to: Path, group: str) -> Iterator[Entry]:
    """The problems of one of its benchmarks."""
    problems = checkout / "benchmarks" / group / "problems-h100"
    for name in sorted(folder.name for folder in problems.iterdir()):
        folder = to / group / name
        folder.mkdir(parents=True)
        for file in ("reference.py", "problem.yaml"):
            shutil.copy(problems / name / file, folder / file)
        shutil.copy(problems / name / "reference.py", folder / "solution_identical.py")
        candidates = {"solution_identical.py": known.HONEST}
        for row in audited:
            source = checkout / row["solution_path"]
            if row["bench"] == group and row["problem"].split()[0] == name and source.is_file():
                file = f"solution_{base.identifier(row['run_id'].removesuffix(f'_{name}'))}.py"
                candidates[published(source.read_text("utf-8"), folder, file)] = row["human_verdict"]
        shapes = kernelbench.shapes_of(problems / name / "shapes.py", base.parse(folder / "reference.py"))
        yield entry(group, name, folder / "reference.py", to, shapes=shapes, candidates=candidates)


def as_audited(checkout: Path, audit: Path, to: Path) -> Iterator[Entry]:
    """Each audited run, with the problem that it was given: some have been changed since. The newest commit before the
    run began has it.
    """
    for row in csv.DictReader(audit.open()):
        at = datetime.strptime(row["run_id"][:15], "%Y%m%d_%H%M%S").strftime(f"%Y-%m-%dT%H:%M:%S{AUDITORS_ZONE}")
        commit = git(checkout, "rev-list", "-1", f"--before={at}", "HEAD").strip()
        solution = git(checkout, "show", f"HEAD:{row['solution_path']}")
        if not solution:
            continue
        name, folder = row["problem"].split()[0], to / "audited" / base.identifier(row["run_id"])
        folder.mkdir(parents=True)
        for file in ("reference.py", "shapes.py", "problem.yaml"):
            places = [f"benchmarks/{row['bench']}/{deck}/{name}/{file}" for deck in DECKS]
            found = (git(checkout, "show", f"{version}:{place}") for version in (commit, "HEAD") for place in places)
            if text := next(filter(None, found), ""):
                (folder / file).write_text(text)
        shapes = [{}]
        if (folder / "reference.py").is_file():
            tree = base.parse(folder / "reference.py")
            with suppress(BenchmarkError):  # the sizes are not literals
                shapes = kernelbench.shapes_of(folder / "shapes.py", tree)
        (folder / "shapes.py").unlink(missing_ok=True)  # a problem is then one target, at the sizes given
        file = published(solution, folder, "solution.py")
        more = {"run_id": row["run_id"], "bench": row["bench"], "of": name, "shapes": shapes}
        more["candidates"] = {file: row["human_verdict"]}
        yield entry("audited", folder.name, folder / "reference.py", to, **more)


def git(checkout: Path, *words: str) -> str:
    """The output of git; empty if it fails."""
    done = subprocess.run(["git", "-C", str(checkout), *words], capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else ""


def published(text: str, folder: Path, file: str) -> str:
    """Write a published solution; returns its path in the folder. Files that it loads follow it in the text."""
    solution, *others = SIDECAR.split(text)
    if others:
        file = f"{Path(file).stem}/{file}"
        (folder / file).parent.mkdir()
    (folder / file).write_text(solution)
    for name, content in zip(others[::2], others[1::2], strict=True):
        (folder / file).with_name(name).write_text(content)
    return file


def kernelbench_levels(checkout: Path, to: Path, number: int, seed: int) -> Iterator[Entry]:
    """A sample of each level, with candidates made of the problem's own text, and sizes reduced for a CPU."""
    for level in (1, 2, 3):
        files = sorted((checkout / "KernelBench" / f"level{level}").glob("*.py"))
        for file in sorted(random.Random(seed).sample(files, min(number, len(files)))):
            yield module(file, f"level{level}", f"l{level}_{file.stem}", to)


def module(file: Path, group: str, name: str, to: Path) -> Entry:
    """A problem of KernelBench's form, with candidates made of its own text."""
    name, text, cases = base.identifier(name), file.read_text("utf-8"), file.with_suffix(".json")
    folder, reduced = to / group / name, reductions(ast.parse(text))
    folder.mkdir(parents=True)
    (folder / file.name).write_text(text)
    if cases.is_file():
        shutil.copy(cases, folder)
        reduced = [{kernelbench.GROUP: largest_case(cases)}]
    candidates = written(folder, {f"{one}.py": known.module(text, one) for one in known.AUDITORS})
    return entry(group, name, folder / file.name, to, reduced=reduced, candidates=candidates)


def multikernel(checkout: Path, to: Path) -> Iterator[Entry]:
    """The problems of the categories that KernelBench lacks."""
    for file in sorted((checkout / "reference").glob("*/*.py")):
        if file.parent.name not in OF_KERNELBENCH:
            yield module(file, f"multikernel_{file.parent.name}", file.stem, to)


def largest_case(cases: Path) -> int:
    """The number of the case with the most elements, of those with at most MOST_ELEMENTS."""
    shapes = [
        [given.get("shape") or [] for given in json.loads(line)["inputs"]]
        for line in cases.read_text("utf-8").splitlines()
        if line.strip()
    ]
    elements = [sum(math.prod(shape) for shape in each if all(isinstance(n, int) for n in shape)) for each in shapes]
    return max(range(len(elements)), key=lambda at: elements[at] if elements[at] <= MOST_ELEMENTS else -elements[at])


def cuda_l1(checkout: Path, gpu: str, to: Path) -> Iterator[Entry]:
    """KernelBench's problems with the published candidates of a trained model: those that compile nothing for GPUs, or
    with `gpu` all that were published for it, with their published speedups.

    The same program may have been published for several GPUs: it is named after the first of them.
    """
    texts: dict[tuple[int, int, str], dict[str, str]] = {}
    published: dict[tuple[int, int, str], dict[str, float]] = {}
    for file in sorted((checkout / "optimized_cuda_code").glob(f"{gpu or '*'}.json")):
        for row in map(json.loads, file.read_text("utf-8").splitlines()):
            problem, text = (int(row["level_id"]), int(row["task_id"]), row["ref_code"]), row["custom_code"] or ""
            if "ModelNew" in text and (gpu or not FOR_GPUS.search(text)):
                name = texts.setdefault(problem, {}).setdefault(text, f"on_{file.stem}.py")
                published.setdefault(problem, {}).setdefault(name, row["score_default"])
    for (level, task, problem), files in sorted(texts.items()):
        name = f"l{level}_{task}"
        folder = to / "cuda_l1" / name
        folder.mkdir(parents=True)
        (folder / "problem.py").write_text(problem)
        candidates = written(folder, {file: text for text, file in files.items()})
        more = {"reduced": reductions(ast.parse(problem)), "published": published[level, task, problem]}
        yield entry("cuda_l1", name, folder / "problem.py", to, candidates=candidates, **more)


def written(folder: Path, texts: Mapping[str, str]) -> dict[str, str]:
    """Write candidates; what is known of each, by file name."""
    for file, text in texts.items():
        (folder / file).write_text(text)
    return {file: known.AUDITORS.get(Path(file).stem.removeprefix("submission_"), "unknown") for file in texts}


def gpumode(checkout: Path, to: Path) -> Iterator[Entry]:
    """Every task, with the smallest row of its tests."""
    for task in sorted((checkout / "problems").glob("*/*/task.yml")):
        facts = yaml.safe_load(task.read_text())
        rows = [row for row in (facts.get("tests") or facts.get("benchmarks") or []) if isinstance(row, dict)]
        if not rows or not (task.parent / "reference.py").is_file():
            continue
        name = base.identifier(f"{task.parent.parent.name}_{task.parent.name}")
        folder = to / "gpumode" / name
        shutil.copytree(task.parent, folder, ignore=shutil.ignore_patterns("submission*", "solutions*"))
        for helper in task.parent.parent.glob("*.py"):  # sources of the task may be in the folder above it
            shutil.copy(helper, folder.parent / helper.name)
            shutil.copy(helper, folder / helper.name)
        sources = [{**one, "source": Path(str(one["source"])).name} for one in facts.get("files") or ()]
        smallest = min(rows, key=lambda row: sum(v for v in row.values() if isinstance(v, int)) - row.get("seed", 0))
        shortened = {**facts, "files": sources, "tests": [smallest], "benchmarks": [smallest]}
        (folder / "task.yml").write_text(yaml.safe_dump(shortened))
        text = (folder / "reference.py").read_text("utf-8")
        names = [one for one in known.AUDITORS if one != "double"]
        candidates = written(folder, {f"submission_{one}.py": known.submission(text, one) for one in names})
        yield entry("gpumode", name, folder, to, format="gpumode", candidates=candidates)


def traces(checkout: Path, to: Path) -> Iterator[Entry]:
    """Every definition with its first workload and our candidates; the folder as it was found is a problem, too."""
    for file in sorted(checkout.rglob("*.json")):
        if file.name != "definition.json" and file.parent.name != "definitions":
            continue
        definition, root = json.loads(file.read_text("utf-8")), file.parent
        workloads = sorted(root.glob("workload*.jsonl")) or sorted(
            (root.parent / "workloads").rglob(f"{file.stem}.jsonl")
        )
        name = base.identifier(f"{root.parent.name}_{root.name}_{definition['name']}")
        folder = to / "traces" / name
        folder.mkdir(parents=True)
        shutil.copy(file, folder / "definition.json")
        if workloads:
            (folder / "workload.jsonl").write_text(workloads[0].read_text().splitlines()[0] + "\n")
        found = sorted(root.glob("solution*.json")) or sorted((root.parent / "solutions").rglob("*.json"))
        for solution in found:
            shutil.copy(solution, folder / f"solution_{solution.stem.removeprefix('solution_')}.json")
        axes = [axis for axis, facts in definition["axes"].items() if facts["type"] == "var"]
        reduced = [{axis: size for axis in axes} for size in SMALL_AXES]
        yield entry("traces_found", name, folder, to, format="flashinfer", reduced=reduced)
        names = [one for one in known.AUDITORS if one != "double"]
        own = folder / "own"
        own.mkdir()
        texts = {f"{one}.json": known.solution(definition["name"], definition["reference"], one) for one in names}
        candidates = {f"own/{one}": auditor for one, auditor in written(own, texts).items()}
        yield entry("traces", name, folder, to, format="flashinfer", reduced=reduced, candidates=candidates)


def ten_operators(to: Path) -> Iterator[Entry]:
    """Operators whose candidates are the kernels of a library and of a compiler."""
    for name in operators.OPERATORS:
        folder = to / "operators" / name
        folder.mkdir(parents=True)
        text, texts = operators.texts(name)
        (folder / "problem.py").write_text(text)
        texts |= {one: known.module(text, one) for one in known.AUDITORS}
        candidates = written(folder, {f"{one}.py": each for one, each in texts.items()})
        candidates |= {"compiled.py": known.HONEST, "liger.py": known.HONEST}
        reduced = [{"ROWS": 128, "WIDTH": 256}]
        yield entry("operators", name, folder / "problem.py", to, reduced=reduced, candidates=candidates)


def reductions(tree: ast.Module) -> list[dict[str, Any]]:
    """Constants for a CPU, from the smallest to those that change the batch alone: a network may need its sizes."""
    constants = {}
    for name, value in adapted.assigned(tree).items():
        with suppress(NameError, TypeError):  # of sizes that are derived from others
            constants[name] = eval(compile(ast.Expression(value), "", "eval"), {"__builtins__": {}})
    caps = ((16, 2), (32, 4), (32, 32), (128, 4), (1 << 40, 4))  # of sizes in general, of a batch
    capped = [{name: _capped(name, value, *most) for name, value in constants.items()} for most in caps]
    return [{name: value for name, value in row.items() if value != _listed(constants[name])} for row in capped]


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
