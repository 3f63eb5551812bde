"""The page of sources: numbers of stored facts that were confirmed, were corrected, or lack a source."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from aisp_mcp.machine.datasheets.load import UNVERIFIED, document
from aisp_mcp.plan.data.tables import PRICES, plan_document, price_rows

_HEAD = """# Sources of the stored facts

Planners and probes use tables in `aisp_mcp/machine/datasheets/` and `aisp_mcp/plan/data/`. Each row names its source
and the day on which the source was read (`checked`). A row counts as corrected when the check changed a value, and as
partly unverified when no source was found for some of its fields; planners then report it in `sources`. A row without
any source would have `source: unverified`; there is none at present.
"""

_PRICES = """The price list was replaced as a whole. Its six rows came from a catalogue, dated by the day it was read
rather than the day of its prices; three of its four cards cost a quarter to a third more by then."""

_TAIL = """
## Read with care

- GPU rows, configurations and prices were compared with public copies and transcriptions of the makers' pages, which
  the row names, not with the pages themselves.
- Prices are refused 180 days after `as_of`, the day of the provider's page. Where two transcriptions disagree there is
  no row, and the tool asks for `usd_per_gpu_hour`.
- Parameter counts of models without recurrent layers equal the closed form exactly (`tests/plan`).
- Published training steps, the anchors of `aisp distributed plan` and `aisp predict scaling`, are in
  [published-training.json](../results/published-training.json): 18 rows of four sources, all confirmed.
- Shares of peak rates (`calibration.yaml`) are fitted to recordings in [results](../results/README.md), not to papers.
- Allowances of the serving planner (memory of the engine, time per layer) are estimates, marked as such in their file.
- Names and meanings of NCCL variables are those of the NCCL user guide at NVIDIA/nccl@5067397c.
- Figures in the concept pages and in the list of incidents have their own references and were not checked again.
"""


def sources_page() -> str:
    """Return docs/sources.md without its marker."""
    tables = fact_tables()
    lines = [_HEAD, "| facts | file | rows | confirmed | corrected | partly unverified |", "|---|---|---|---|---|---|"]
    lines += [_line(name, file, rows) for name, (file, rows) in tables.items()]
    lines += ["", "## Corrected", "", "| row | was |", "|---|---|"]
    lines += [f"| {name_of(row)} | {row['corrected']} |" for row in _all_rows(tables) if row.get("corrected")]
    lines += ["", _PRICES]
    lines += ["", "## Fields without a source", "", "| row | fields |", "|---|---|"]
    lines += [f"| {name} | {fields} |" for _, rows in tables.values() for name, fields in rows_without_source(rows)]
    return "\n".join(lines) + "\n" + _TAIL


def _line(name: str, file: str, rows: Sequence[Mapping[str, Any]]) -> str:
    lacking = len(rows_without_source(rows))
    corrected = sum(bool(row.get("corrected")) for row in rows)
    both = sum(bool(row.get("corrected")) and bool(rows_without_source([row])) for row in rows)
    confirmed = len(rows) - lacking - corrected + both
    return f"| {name} | `{file}` | {len(rows)} | {confirmed} | {corrected} | {lacking} |"


def _all_rows(tables: Mapping[str, tuple[str, list[Mapping[str, Any]]]]) -> list[Mapping[str, Any]]:
    return [row for _, rows in tables.values() for row in rows]


# --- tables of facts


def fact_tables() -> dict[str, tuple[str, list[Mapping[str, Any]]]]:
    """Return tables by name: their file, and rows with `source`, `checked` and `unverified` fields."""
    serving = plan_document("serving.yaml")
    return {
        "GPU peaks, memory, links, power": ("gpus.yaml", document("gpus.yaml")),
        "CUDA limits per compute capability": ("capabilities.yaml", document("capabilities.yaml")),
        "model configurations": ("models.yaml", plan_document("models.yaml")["models"]),
        "effects of techniques": ("techniques.yaml", plan_document("techniques.yaml")["techniques"]),
        "weight formats": ("serving.yaml", serving["formats"]),
        "options of engines": (
            "serving.yaml",
            [row for engine in serving["engines"].values() for row in _options(engine)],
        ),
        "list prices": (PRICES, list(price_rows())),
    }


def _options(engine: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [
        {"name": name, "source": engine["source"], "checked": engine["checked"]} for name in engine["options"].values()
    ]


def name_of(row: Mapping[str, Any]) -> str:
    """Return the name of a row."""
    name = row.get("name") or row.get("sku") or row.get("compute_capability")
    return f"{name} {row['provider']} {row['kind']}" if "provider" in row else str(name)


def rows_without_source(rows: Iterable[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Return (row, fields without a source) for every row with such fields."""
    lacking_rows = []
    for row in rows:
        missing = ["all"] if row["source"] == UNVERIFIED else row.get("unverified") or []
        if missing:
            lacking_rows.append((name_of(row), ", ".join(missing)))
    return lacking_rows
