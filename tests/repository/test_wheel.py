"""The wheel carries everything a user needs, and works from an empty folder."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = (
    "aisp_mcp",
    "benchmarks",
    "labs",
    "docs",
    "constraints",
    "pyproject.toml",
    "setup.py",
    "MANIFEST.in",
    "README.md",
    "LICENSE",
)
BUILD = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"  # as pip calls it


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built without network from a copy, so that the checkout stays clean; a killed process left half a cache in it."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in SOURCES:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, source / name)
    cache = source / "aisp_mcp/__pycache__"
    cache.mkdir(exist_ok=True)
    (cache / "worker.cpython-311.pyc.139704363027792").touch()
    command = [sys.executable, "-c", BUILD, str(out)]
    subprocess.run(command, cwd=source, check=True, stdout=subprocess.DEVNULL)
    (built,) = out.glob("*.whl")
    return built


def test_the_wheel_has_the_suites_the_licence_and_the_type_marker(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    files = [
        p
        for name in ("benchmarks", "labs")
        for p in (ROOT / name).rglob("*")
        if p.suffix in (".py", ".cpp", ".cu", ".yaml", ".md")
    ]
    suites = {f"aisp_mcp/_suites/{p.relative_to(ROOT)}" for p in files}
    sources = [*(ROOT / "docs").glob("*.md"), *(ROOT / "docs/tools").glob("*.md")]
    pages = {f"aisp_mcp/_{p.relative_to(ROOT)}" for p in sources}
    assert suites
    assert "aisp_mcp/_docs/tools/index.md" in pages
    assert suites | pages <= names
    assert "aisp_mcp/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not any("__pycache__" in name or name.startswith(("tests", "tools")) for name in names)


def test_every_data_file_of_the_package_is_in_the_wheel(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    data = [
        p for p in (ROOT / "aisp_mcp").rglob("*") if p.is_file() and p.suffix != ".py" and "__pycache__" not in p.parts
    ]
    assert [str(p) for p in data if p.relative_to(ROOT).as_posix() not in names] == []


def test_the_installed_package_finds_its_own_suites(wheel: Path, tmp_path: Path) -> None:
    site, empty = tmp_path / "site", tmp_path / "empty"
    empty.mkdir()
    zipfile.ZipFile(wheel).extractall(site)  # as pip does, which compiles every file as well
    script = "import sys; from aisp_mcp.front.cli.main import main; sys.exit(main())"
    env = {**os.environ, "PYTHONPATH": str(site), "AISP_HOME": str(tmp_path / "home")}
    env.pop("AISP_BENCH_ROOT", None)
    command = [sys.executable, "-c", script, "bench", "list-targets", "--json"]
    done = subprocess.run(command, cwd=empty, env=env, check=True, capture_output=True, text=True)
    assert json.loads(done.stdout)["status"] == "ok"
    assert "ch01:" in done.stdout
    read = (
        "from aisp_mcp.assist.ask import pages; print(pages.__file__, len(pages.titles()), pages.page('tools')[:200])"
    )
    done = subprocess.run([sys.executable, "-c", read], cwd=empty, env=env, check=True, capture_output=True, text=True)
    assert done.stdout.startswith(f"{site}/")
    assert "# Tools" in done.stdout
