"""Sources of the kept facts: the tables whose rows name one, and how a row is cited."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from importlib import resources
from typing import Any, Protocol

from aisp_mcp.knowledge.load import document

UNVERIFIED = "unverified"  # in place of a source: none was found for any of the row
PRICES = "prices.csv"


class Sourced(Protocol):
    """A row of facts. unverified: its fields for which no source was found."""

    @property
    def source(self) -> str: ...
    @property
    def unverified(self) -> list[str]: ...


def cite(row: Sourced) -> str:
    """The row's source, and the fields that it does not cover."""
    return f"{row.source}; unverified: {', '.join(row.unverified)}" if row.unverified else row.source


def price_rows() -> list[dict[str, str]]:
    """Rows of the price list as text."""
    text = (resources.files("aisp_mcp.knowledge") / PRICES).read_text("utf-8")
    return list(csv.DictReader(line for line in text.splitlines() if not line.startswith("#")))


def tables() -> dict[str, tuple[str, list[Mapping[str, Any]]]]:
    """Name of each table to its file and its rows, every one with source, checked and what lacks a source."""
    serving = document("serving.yaml")
    return {
        "GPU peaks, memory, links, power": ("gpus.yaml", document("gpus.yaml")),
        "CUDA limits per compute capability": ("capabilities.yaml", document("capabilities.yaml")),
        "model configurations": ("models.yaml", document("models.yaml")["models"]),
        "effects of techniques": ("techniques.yaml", document("techniques.yaml")["techniques"]),
        "weight formats": ("serving.yaml", serving["formats"]),
        "vLLM flags": ("serving.yaml", [{"name": name, **_of(serving["flags"])} for name in serving["flags"]["names"]]),
        "list prices": (PRICES, list(price_rows())),
    }


def _of(row: Mapping[str, Any]) -> dict[str, Any]:
    return {"source": row["source"], "checked": row["checked"]}


def name_of(row: Mapping[str, Any]) -> str:
    """Name of a row for a reader."""
    named = row.get("name") or row.get("sku") or row.get("compute_capability")
    return f"{named} {row['provider']} {row['kind']}" if "provider" in row else str(named)


def lacking(rows: Iterable[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """(row, fields without a source) of every row that has some."""
    found = []
    for row in rows:
        missing = ["all"] if row["source"] == UNVERIFIED else row.get("unverified") or []
        if missing:
            found.append((name_of(row), ", ".join(missing)))
    return found
