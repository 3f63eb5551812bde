"""The repository judged as a reader finds it: its files, its own tools, its build."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def root() -> Path:
    """The checkout these tests stand in."""
    return ROOT


@pytest.fixture
def load_tool(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Import tools/NAME.py, which is a script and not part of the package."""

    def load(name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(f"repository_tool_{name}", ROOT / "tools" / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, spec.name, module)
        spec.loader.exec_module(module)
        return module

    return load
