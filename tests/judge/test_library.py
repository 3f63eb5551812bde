"""The judge as a library: two functions, and nothing of a server around them. 3 s of processor time."""

from __future__ import annotations

from pathlib import Path

import pytest

from aisp_mcp.errors import Unavailable, UsageError
from aisp_mcp.judge import compare
from aisp_mcp.judge.audit_log import check_chain
from aisp_mcp.judge.records import Verdict

pytest.importorskip("numpy")
pytest.importorskip("torch")
pytestmark = [pytest.mark.torch]
SLOW = "import numpy as np\n\ndef total(x):\n    return np.array([sum(row) for row in x])\n"
FAST = "def total(x):\n    return x.sum(axis=1)\n"
WRONG = "def total(x):\n    rows = x[:, 1:]\n    return rows.swapaxes(0, 2)\n"


@pytest.fixture(autouse=True)
def homeless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder that a library must not make. The proof that isolation works here is cached elsewhere."""
    home = tmp_path / "home"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("HOME", "AISP_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(home))
    return home


def test_two_functions_are_judged_without_a_server_or_a_home(tmp_path: Path, homeless: Path) -> None:
    slow, fast = tmp_path / "slow.py", tmp_path / "fast.py"
    slow.write_text(SLOW)
    fast.write_text(FAST)
    said: list[str] = []
    comparison = compare(
        f"{slow}:total",
        f"{fast}:total",
        inputs="x=randn(40, 100)",
        preset="quick",
        report=lambda done, total, message: said.append(message),
    )
    assert comparison.verdict is Verdict.FASTER
    assert comparison.ratio is not None
    assert comparison.ratio > 2
    assert str(comparison) == comparison.sentence
    assert "faster" in comparison.sentence
    assert comparison.disclosed["inputs"] == "x=randn(40, 100)"
    assert comparison.log_path is not None
    assert check_chain(Path(comparison.log_path)) == comparison.log_sha256
    assert said[-1].endswith("judging")
    assert not homeless.exists()


def test_an_error_of_a_candidate_names_the_users_own_line(tmp_path: Path) -> None:
    slow, fast = tmp_path / "slow.py", tmp_path / "fast.py"
    slow.write_text(SLOW)
    fast.write_text(WRONG)
    comparison = compare(f"{slow}:total", f"{fast}:total", inputs="x=randn(20, 40)", preset="quick", folder=tmp_path)
    assert comparison.verdict is Verdict.INCORRECT
    assert "at fast.py:3" in comparison.sentence
    assert Path(comparison.log_path or "").is_relative_to(tmp_path)


def test_what_cannot_be_compared_raises(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as wrong:
        compare(SLOW, FAST, preset="quick")
    assert wrong.value.code == "NO_INPUTS"
    missing = "import no_such_package\n\ndef total(x):\n    return x.sum(axis=1)\n"
    with pytest.raises(Unavailable) as lacks:
        compare(SLOW, missing, inputs="x=randn(20, 40)", preset="quick")
    assert "no_such_package" in lacks.value.message
