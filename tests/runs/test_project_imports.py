"""A run imports the modules of the project around its benchmarks, without an installation."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from aisp_mcp.judge import candidate_needs
from aisp_mcp.judge.protocol.module_loader import project_folders

SPEC = '''"""The model's activation."""
from aisp_mcp.bench import Benchmark
from mingpt.model import gelu


class Gelu(Benchmark):
    n = 4096

    def inputs(self, rng):
        return {"x": rng.randn(self.n)}

    def run(self, x):
        return gelu(x)
'''
VARIANT = '"""The same."""\nfrom mingpt.model import gelu\n\n\ndef run(x):\n    return gelu(x)\n'
MODEL = "import torch\n\n\ndef gelu(x):\n    return torch.nn.functional.gelu(x)\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    for name, text in {
        "pyproject.toml": "",
        "mingpt/__init__.py": "",
        "mingpt/model.py": MODEL,
        "benchmarks/ch01/baseline_gelu.py": SPEC,
        "benchmarks/ch01/optimized_gelu.py": VARIANT,
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.mark.torch
@pytest.mark.usefixtures("least_quick")
def test_a_run_imports_the_projects_own_package(cli_here: Any, project: Path) -> None:
    done = cli_here("bench", "run", "--targets", "ch01:gelu", "--preset", "quick", "--json", cwd=project, timeout=200)
    result = json.loads(done.stdout)["result"]
    assert (result["skipped"], result["failed"]) == ([], [])
    assert result["rulings"][0]["verdict"] not in ("incorrect", "invalid")


def test_the_projects_modules_come_before_installed_ones_but_not_before_the_standard_library(project: Path) -> None:
    (project / "yaml.py").write_text("OURS = True\n")
    (project / "random.py").write_text("raise RuntimeError('not the standard library')\n")
    candidate = project / "benchmarks/ch01/optimized_gelu.py"
    candidate.write_text("import random\nimport yaml\nOURS = yaml.OURS and random.random() >= 0\n")
    program = (
        "import sys; from pathlib import Path; from aisp_mcp.judge.protocol.module_loader import load_candidate; "
        "print(load_candidate(Path(sys.argv[1])).OURS)"
    )
    words = [sys.executable, "-P", "-c", program, str(candidate)]
    assert subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout == "True\n"
    assert (
        candidate_needs.lacks(project / "benchmarks/ch01/baseline_gelu.py", "cpu", project_folders(candidate)) is None
    )


def test_a_file_outside_of_any_project_sees_no_other_folders(tmp_path: Path) -> None:
    assert project_folders(tmp_path / "a.py") == []
