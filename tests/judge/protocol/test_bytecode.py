"""Writers of bytecode: the verifier for libraries that came without it, nobody for the files of a user."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from harness_support import HONEST, write_pair

import aisp_mcp

COMPARE = """
import sys
from pathlib import Path
from aisp_mcp.judge.comparison import compare
from aisp_mcp.judge.options import Options
from aisp_mcp.judge.pair import Pair
from aisp_mcp.judge.presets import Preset
here = Path(sys.argv[1])
pair = Pair("t:product", here / "baseline_product.py", "", here / "optimized_product.py")
print(compare(pair, Options(Preset("least", 1, 0.001, 1), "small", "cpu", here)).verdict)
"""
ONLY_OF_THE_VERIFIER = "tolerance"


def test_what_an_installer_left_uncompiled_is_compiled_once(tmp_path: Path) -> None:
    installed, folder = tmp_path / "installed", tmp_path / "mine"
    shutil.copytree(
        Path(aisp_mcp.__file__).parent, installed / "aisp_mcp", ignore=shutil.ignore_patterns("__pycache__")
    )
    folder.mkdir()
    (folder / "helper.py").write_text("SIZE = 128\n")
    pair = write_pair(folder, HONEST)
    text = pair.baseline.read_text()
    pair.baseline.write_text(f"import sys; sys.path.insert(0, {str(folder)!r}); import helper\n{text}")
    env = {**os.environ, "PYTHONPATH": str(installed), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", COMPARE, str(folder)], env=env, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert list(installed.glob(f"aisp_mcp/judge/verifier/checks/__pycache__/{ONLY_OF_THE_VERIFIER}.*.pyc"))
    assert not list(installed.glob("aisp_mcp/judge/candidate/__pycache__/main.*.pyc"))  # a worker's alone
    assert not list(folder.rglob("*.pyc"))
