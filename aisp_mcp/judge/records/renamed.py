"""Former names of flags, clocks and fields, read for one release so that stored runs stay readable."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

FLAGS = {
    "parent_coarse": "clock_resolution_low",
    "together_unknown": "batching_unverified",
    "faster_together": "batching",
    "parent_hindered": "parent_overcounts",
    "tripwire": "source_hint",
}
CLOCKS = {"shim": "worker", "shim_mean": "worker_mean", "proven": "lower_bound"}
CLOCK_FIELDS = {"ratio_shim": "ratio_worker", "ratio_proven": "ratio_lower_bound"}


def with_new_names(data: Any, fields: Mapping[str, str], values: Mapping[str, Mapping[str, str]]) -> Any:
    """The same record with new names. fields: old to new name. values: per field, old to new value."""
    if not isinstance(data, dict):
        return data
    record = {fields.get(name, name): value for name, value in data.items()}
    for name, known in values.items():
        if isinstance(old := record.get(name), str):
            record[name] = known.get(old, old)
    return record
