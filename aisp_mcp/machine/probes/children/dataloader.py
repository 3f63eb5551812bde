"""Passes over a user's dataset through torch's DataLoader: samples per second for each setting.

Workers persist over the passes of a setting, so a timed pass begins and ends with empty queues and includes no process
start. A pass before the sweep fills the page cache for all settings alike.
"""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def main(params: dict[str, Any]) -> dict[str, Any]:
    """params: factory (FILE.py:NAME), sweep [[workers, prefetch, pinned]], batch, batches, passes.

    rows: one per setting, with the samples/s of each pass and the seconds to the first batch, including the start of
    the workers. Raises ValueError for a dataset without a length, and whatever the factory or the dataset raises.
    """
    from torch.utils.data import Subset

    dataset = make(params["factory"])
    if not hasattr(dataset, "__len__"):
        raise ValueError("the dataset has no length: only map-style datasets are measured")
    batch = params["batch"]
    batches = min(params["batches"], len(dataset) // batch)
    if batches < 2:
        raise ValueError(f"{len(dataset)} samples give fewer than 2 batches of {batch}")
    part = Subset(dataset, range(batch * batches))
    _setting(part, batch, 0, *params["sweep"][-1])
    rows = [_setting(part, batch, params["passes"], *setting) for setting in params["sweep"]]
    return {"rows": rows, "batches": batches, "samples": len(dataset)}


def make(factory: str) -> Any:
    """The dataset that FILE.py:NAME returns. The module is registered, so that workers can import what they pickle."""
    file, _, name = factory.rpartition(":")
    spec = importlib.util.spec_from_file_location(Path(file).stem, file)
    if spec is None or spec.loader is None:
        raise ValueError(f"{file} is not a Python module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[Path(file).stem] = module
    sys.path.insert(0, str(Path(file).parent))
    spec.loader.exec_module(module)
    function: Callable[[], Any] = getattr(module, name)
    return function()


def _setting(part: Any, batch: int, passes: int, workers: int, prefetch: int | None, pinned: bool) -> dict[str, Any]:
    """Run a first pass that starts the workers, then the timed ones."""
    from torch.utils.data import DataLoader

    options: dict[str, Any] = {"num_workers": workers, "pin_memory": pinned}
    if workers:
        options |= {"prefetch_factor": prefetch, "persistent_workers": True}
    loader = DataLoader(part, batch_size=batch, **options)
    first_s, _ = _pass(loader)
    seconds = [_pass(loader)[1] for _ in range(passes)]
    rates = [len(part) / spent for spent in seconds]
    return {"setting": [workers, prefetch, pinned], "samples_per_s": rates, "first_s": first_s}


def _pass(loader: Any) -> tuple[float, float]:
    """Seconds to the first batch, and of the whole pass."""
    began = time.perf_counter()
    first = 0.0
    for at, _ in enumerate(loader):
        if at == 0:
            first = time.perf_counter() - began
    return first, time.perf_counter() - began
