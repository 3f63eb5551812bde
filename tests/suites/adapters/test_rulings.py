"""Problems of every format through the judge: honest candidates pass, published cheats are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import adapter_support as support
import foreign_kernelbench as kernelbench
import foreign_others as others
import pytest

from aisp_mcp.process import isolation

pytestmark = [pytest.mark.slow, pytest.mark.torch, pytest.mark.timeout(1500)]
Run = Callable[[Path], dict[str, Any]]
REFUSED = ("incorrect", "invalid")


@pytest.fixture
def run(cli: Any, home: Path) -> Callable[[Path], dict[str, Any]]:
    """Measure a folder; the whole answer, as it was kept, and not the part that is printed."""
    return lambda folder: measured(cli, home, folder)


def measured(cli: Any, home: Path, folder: Path) -> dict[str, Any]:
    done = cli("bench", "run", "--from", str(folder), "--preset", "quick", "--evidence", "--json", timeout=1400)
    answer = json.loads(done.stdout)
    assert answer["status"] == "ok", answer
    answer = json.loads((home / "runs" / answer["result"]["run_id"] / "envelope.json").read_text())
    result: dict[str, Any] = answer["result"]
    assert result["failed"] == []
    return result


def judged(result: dict[str, Any]) -> dict[str, str]:
    """Verdicts, each checked for what its candidate's name promises."""
    verdicts = {row["target"]: row["verdict"] for row in result["rulings"]}
    for name, verdict in verdicts.items():
        if "cheat" in name:
            assert verdict in REFUSED, (name, verdict)
        elif "slow" in name:
            assert verdict not in (*REFUSED, "faster"), (name, verdict)
        else:
            assert verdict not in REFUSED, (name, verdict)
    return verdicts


def test_kernelbench(run: Run, tmp_path: Path) -> None:
    result = run(support.kernelbench_folder(tmp_path))
    groups = (kernelbench.HONEST, kernelbench.CHEATS, kernelbench.SLOW)
    assert len(judged(result)) == sum(map(len, groups))
    disclosed = result["evidence"][0]["disclosed"]
    assert disclosed["adapted_from"] == "kernelbench"


@pytest.mark.parametrize("name", sorted(others.DEFINITIONS))
def test_flashinfer(run: Run, tmp_path: Path, name: str) -> None:
    assert len(judged(run(support.flashinfer_folder(tmp_path, name)))) == len(others.SOLUTIONS[name])


@pytest.mark.parametrize("name", sorted(others.GPUMODE))
def test_gpumode(run: Run, tmp_path: Path, name: str) -> None:
    assert len(judged(run(support.gpumode_folder(tmp_path, name)))) == len(others.SUBMISSIONS[name])


def test_classes(run: Run, tmp_path: Path) -> None:
    result = run(support.write(tmp_path / "classes", others.CLASSES))
    assert len(judged(result)) == sum(name.startswith("optimized") for name in others.CLASSES)


def test_pytest_benchmark(run: Run, tmp_path: Path) -> None:
    assert len(judged(run(support.write(tmp_path / "pytest", others.PYTEST)))) == 5


def test_a_candidate_with_other_parameters_is_refused_clearly(cli: Any, tmp_path: Path) -> None:
    folder = support.write(tmp_path / "in", {"mlp": kernelbench.PROBLEMS["mlp"]})
    words = ("--target", str(folder / "mlp.py"), "--candidate", kernelbench.OTHER_PARAMETERS)
    done = cli("bench", "verify", *words, "--format", "kernelbench", "--preset", "quick", "--json", timeout=280)
    (skipped,) = json.loads(done.stdout)["result"]["skipped"]
    assert skipped["code"] == "CANDIDATE_NEEDS", skipped
    assert (
        "lacks norm.bias (192,), norm.weight (192,), second.bias (192,), second.weight (192, 192)" in skipped["missing"]
    )


HALF = """        self.weight = nn.Parameter(torch.randn(width, width, dtype=torch.bfloat16))
        self.register_buffer("table", torch.linspace(0, 1, width), persistent=False)
"""
PARTIAL = """        self.weight = nn.Parameter(torch.empty(width, width, dtype=torch.bfloat16))
        self.register_buffer("table", torch.linspace(0, 1, width), persistent=False)
        self.register_buffer("partial", torch.zeros(64, width), persistent=False)
"""


def test_what_is_no_parameter_keeps_its_precision(cli: Any, tmp_path: Path) -> None:
    """Such as tables, and memory for partial sums, of which a compiled kernel takes the address."""
    kept = "assert self.table.dtype == torch.float32 or x.dtype == torch.float64\n"
    product = "((x @ self.weight).float() * self.table).bfloat16()"
    inputs = "torch.randn(64, N, dtype=torch.bfloat16)"
    forward = f"{kept}        return {product}"
    text = kernelbench.problem("Scaled product.", forward, inputs, HALF, "[N]")
    own = "assert self.partial.dtype == self.table.dtype == torch.float32\n"
    own += "torch.mm(x.float(), self.weight.float(), out=self.partial)\n"
    candidate = kernelbench.candidate(f"{own}return {product}", PARTIAL)
    folder = support.write(tmp_path / "in", {"scaled": text, "own": candidate})
    words = ("--target", str(folder / "scaled.py"), "--candidate", str(folder / "own.py"))
    done = cli("bench", "verify", *words, "--format", "kernelbench", "--preset", "quick", "--json", timeout=280)
    answer = json.loads(done.stdout)
    assert answer["status"] == "ok", done.stdout
    assert answer["result"]["rulings"][0]["verdict"] in ("slower", "inconclusive"), done.stdout


HELPER = "import torch\nfrom pathlib import Path\n\nTEXT = (Path(__file__).parent / 'kernel.cpp').read_text()\n\n\n"


def test_a_candidate_comes_with_the_files_that_it_names(cli: Any, tmp_path: Path) -> None:
    """An imported module, and the source that this module reads; other files stay where they are."""
    folder = support.write(tmp_path / "in", {"softmax": kernelbench.PROBLEMS["softmax"]})
    mine = support.write(tmp_path / "mine", {"own": "", "helpers": "", "other": "raise ValueError\n"})
    own = kernelbench.candidate("return softmax(x)", before="from helpers import softmax\n")
    (mine / "own.py").write_text(own)
    (mine / "helpers.py").write_text(f"{HELPER}def softmax(x):\n    assert 'kernel' in TEXT\n    return x.softmax(1)\n")
    (mine / "kernel.cpp").write_text("// a kernel\n")
    done = cli("bench", "verify", str(folder / "softmax.py"), str(mine / "own.py"), "--preset", "quick", "--json")
    answer = json.loads(done.stdout)
    assert answer["status"] == "ok", done.stdout
    ruling = answer["result"]["rulings"][0]
    assert ruling["verdict"] not in ("incorrect", "invalid"), ruling


@pytest.mark.timeout(180)
def test_a_mended_candidate_is_judged_again(cli_here: Any, tmp_path: Path) -> None:
    """One that was judged invalid is not: its own file tells them apart, not the one that loads it."""
    folder = support.write(tmp_path / "in", {"softmax": kernelbench.PROBLEMS["softmax"]})
    mine = support.write(tmp_path / "mine", {"own": kernelbench.candidate("import os; os._exit(0)")}) / "own.py"
    words = ("bench", "verify", str(folder / "softmax.py"), str(mine), "--preset", "quick", "--json")
    assert json.loads(cli_here(*words).stdout)["result"]["rulings"][0]["verdict"] == "invalid"
    assert json.loads(cli_here(*words).stdout)["error"]["code"] == "QUARANTINED"
    mine.write_text(kernelbench.candidate("return x.softmax(1)"))
    assert json.loads(cli_here(*words).stdout)["result"]["rulings"][0]["verdict"] not in ("incorrect", "invalid")


def test_a_candidate_that_writes_next_to_itself_is_skipped(cli: Any, tmp_path: Path) -> None:
    if isolation.probe().level not in isolation.NAMESPACES:
        pytest.skip("without namespaces, the folder is not read-only")
    folder = support.write(tmp_path / "in", {"softmax": kernelbench.PROBLEMS["softmax"]})
    before = "from pathlib import Path\n(Path(__file__).parent / 'build').mkdir()\n"
    mine = support.write(tmp_path / "mine", {"own": kernelbench.candidate("return x.softmax(1)", before=before)})
    done = cli("bench", "verify", str(folder / "softmax.py"), str(mine / "own.py"), "--preset", "quick", "--json")
    skipped = json.loads(done.stdout)["result"]["skipped"][0]
    assert skipped["code"] == "CANDIDATE_NEEDS", done.stdout
    assert "a writable folder" in skipped["missing"]
