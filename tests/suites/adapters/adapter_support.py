"""Write the problems of these tests to disk, as a user would have them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import foreign_kernelbench as kernelbench
import foreign_others as others


def write(folder: Path, texts: dict[str, str], suffix: str = ".py") -> Path:
    """Files by stem."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / f"{name}{suffix}").write_text(text)
    return folder


def kernelbench_folder(root: Path) -> Path:
    """All problems and candidates."""
    result = (kernelbench.PROBLEMS, kernelbench.HONEST, kernelbench.CHEATS, kernelbench.SLOW)
    return write(root / "kernelbench", {name: text for group in result for name, text in group.items()})


def flashinfer_folder(root: Path, name: str) -> Path:
    """One definition with workloads and solutions."""
    folder = write(root / name, {"definition": json.dumps(others.DEFINITIONS[name])}, ".json")
    (folder / "workload.jsonl").write_text("\n".join(json.dumps(other) for other in others.WORKLOADS[name]))
    return write(folder, {f"solution_{key}": text for key, text in others.SOLUTIONS[name].items()}, ".json")


def gpumode_folder(root: Path, name: str) -> Path:
    """One task with submissions."""
    task, reference = others.GPUMODE[name]
    folder = write(root / name, {"reference": reference, "task": others.TYPES})
    (folder / "task.yml").write_text(task)
    (root / "utils.py").write_text(others.UTILS)
    return write(folder, {f"submission_{key}": text for key, text in others.SUBMISSIONS[name].items()})


def compared(
    cli_here: Any, root: Path, problem: str, candidates: dict[str, str], *words: str
) -> tuple[list[str], dict[str, Any]]:
    """Adapt a problem of KernelBench and compare its candidates' outputs: what adapting discloses, and the answer."""
    files, path = write(root / "mine", candidates), write(root / "in", {"it": problem}) / "it.py"
    to = ("--to", str(root / "out"), "--allow-write", str(root), *words)
    done = cli_here("bench", "adapt", str(path), *to, "--candidates", *map(str, sorted(files.iterdir())), "--json")
    (adapted,) = json.loads(done.stdout)["result"]["problems"]
    done = cli_here("bench", "fuzz", "kernelbench:it", "--bench-root", str(root / "out"), "--json")
    return adapted["disclosed"], json.loads(done.stdout)["result"]


def failing(report: dict[str, Any]) -> set[str]:
    """Names of the candidates whose outputs are wrong."""
    return {row["candidate"].removeprefix("kernelbench:it_") for row in report["failing"]}
