"""Put one of two functions in place in every Python process of a program; count the baseline's calls if asked.

A copy of this file is the `sitecustomize` of the program, so it imports nothing but the standard library. The place is
known by the file or the name of its module, whenever that is imported: the function is replaced before anybody can
import it from there.
"""

from __future__ import annotations

import functools
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import mmap
import os
import sys
import threading
import time
from collections.abc import Sequence
from types import ModuleType
from typing import Any

VARIABLE = "AISP_SWAP"  # the JSON file that says what to do
CALLS, SECONDS = 0, 1  # places in a file of counts


class Counts:
    """Calls and their seconds, in a file that outlives the process however it ends; one for each process."""

    def __init__(self, folder: str) -> None:
        self._folder, self._depth = folder, threading.local()
        self._open()
        os.register_at_fork(after_in_child=self._open)

    def _open(self) -> None:
        with open(os.path.join(self._folder, f"{os.getpid()}.calls"), "wb+") as file:
            file.write(bytes(24))
            file.flush()
            self._values = memoryview(mmap.mmap(file.fileno(), 24)).cast("d")

    def of(self, function: Any) -> Any:
        """The function, counted. A class has its calls counted."""
        if isinstance(function, type):
            name = "forward" if hasattr(function, "forward") else "__call__"
            setattr(function, name, self.of(getattr(function, name)))
            return function

        @functools.wraps(function)
        def counted(*args: Any, **kwargs: Any) -> Any:
            if getattr(self._depth, "inside", False):
                return function(*args, **kwargs)
            self._depth.inside = True
            _synchronise()
            begin = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                _synchronise()
                self._values[SECONDS] += time.perf_counter() - begin
                self._values[CALLS] += 1
                self._depth.inside = False

        return counted


def _synchronise() -> None:
    torch: Any = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    if cuda is not None and hasattr(cuda, "is_initialized") and cuda.is_initialized():
        cuda.synchronize()


class Finder(importlib.abc.MetaPathFinder):
    """Lets the other finders find the module, and replaces the function once it has been executed."""

    def __init__(self, task: dict[str, Any]) -> None:
        self._task, self._counts = task, Counts(task["counts"]) if task.get("counts") else None

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.rpartition(".")[2] != self._task["last"]:
            return None
        for finder in sys.meta_path:
            found = None if finder is self else finder.find_spec(fullname, path, target)
            if found is not None:
                break
        if found is None or found.loader is None or not self._is_place(fullname, found.origin):
            return None
        execute = found.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            self.replace(module)

        found.loader.exec_module = exec_module  # type: ignore[method-assign]
        return found

    def _is_place(self, fullname: str, origin: str | None) -> bool:
        if self._task["module"]:
            return bool(fullname == self._task["module"])
        return origin is not None and os.path.realpath(origin) == self._task["path"]

    def replace(self, module: ModuleType) -> None:
        """Put the task's function into the module, or into a class of it."""
        *outer, name = self._task["name"].split(".")
        holder: Any = functools.reduce(getattr, outer, module)
        if not hasattr(holder, name):
            raise AttributeError(f"{module.__name__} has no {self._task['name']}")
        function = _loaded(self._task["function"]) if self._task.get("function") else getattr(holder, name)
        setattr(holder, name, self._counts.of(function) if self._counts else function)
        if self._task.get("seen"):
            open(self._task["seen"], "w").close()  # the module was imported


def _loaded(function: dict[str, Any]) -> Any:
    """The candidate, from its module or its file."""
    sys.path.extend(folder for folder in function["folders"] if folder not in sys.path)
    if function["module"]:
        return getattr(importlib.import_module(function["module"]), function["name"])
    spec = importlib.util.spec_from_file_location(f"aisp_candidate_{function['stem']}", function["file"])
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return getattr(module, function["name"])


def install() -> None:
    """Watch imports for the place that the task names, then run the machine's own sitecustomize."""
    with open(os.environ[VARIABLE], encoding="utf-8") as file:
        task = json.load(file)
    if task["name"]:
        sys.meta_path.insert(0, Finder(task))
    here = os.path.dirname(os.path.realpath(__file__))
    others = [folder for folder in sys.path if os.path.realpath(folder or ".") != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


if __name__ == "sitecustomize":
    install()
