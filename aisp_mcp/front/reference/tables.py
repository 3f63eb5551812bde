"""The tables of facts whose rows name their source, and fields without a source."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from aisp_mcp.machine.datasheets.load import document
from aisp_mcp.machine.datasheets.provenance import UNVERIFIED
from aisp_mcp.plan.data.tables import PRICES, plan_document, price_rows


def tables() -> dict[str, tuple[str, list[Mapping[str, Any]]]]:
    """Return tables by name: their file, and rows with `source`, `checked` and `unverified` fields."""
    serving = plan_document("serving.yaml")
    return {
        "GPU peaks, memory, links, power": ("gpus.yaml", document("gpus.yaml")),
        "CUDA limits per compute capability": ("capabilities.yaml", document("capabilities.yaml")),
        "model configurations": ("models.yaml", plan_document("models.yaml")["models"]),
        "effects of techniques": ("techniques.yaml", plan_document("techniques.yaml")["techniques"]),
        "weight formats": ("serving.yaml", serving["formats"]),
        "vLLM flags": ("serving.yaml", [{"name": name, **_of(serving["flags"])} for name in serving["flags"]["names"]]),
        "list prices": (PRICES, list(price_rows())),
    }


def _of(row: Mapping[str, Any]) -> dict[str, Any]:
    return {"source": row["source"], "checked": row["checked"]}


def name_of(row: Mapping[str, Any]) -> str:
    """Return the name of a row."""
    name = row.get("name") or row.get("sku") or row.get("compute_capability")
    return f"{name} {row['provider']} {row['kind']}" if "provider" in row else str(name)


def lacking(rows: Iterable[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Return (row, fields without a source) for every row with such fields."""
    lacking_rows = []
    for row in rows:
        missing = ["all"] if row["source"] == UNVERIFIED else row.get("unverified") or []
        if missing:
            lacking_rows.append((name_of(row), ", ".join(missing)))
    return lacking_rows
