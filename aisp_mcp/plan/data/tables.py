"""Read the planners' data. A name that is not listed has no row; nothing is inferred from a similar one."""

from __future__ import annotations

import csv
import difflib
import re
from functools import cache, lru_cache
from importlib import resources
from typing import Any

from aisp_mcp.machine.datasheets.load import GpuFacts, document, facts, normal
from aisp_mcp.plan import checkpoint
from aisp_mcp.plan.architecture import Architecture
from aisp_mcp.plan.records import Alias, Calibration, CollectiveShares, Engine, Price, ServingShares, Technique

PACKAGE, PRICES = "aisp_mcp.plan.data", "prices.csv"


def plan_document(name: str) -> Any:
    """A YAML file of this folder, parsed."""
    return document(name, PACKAGE)


def price_rows() -> list[dict[str, str]]:
    text = (resources.files(PACKAGE) / PRICES).read_text("utf-8")
    return list(csv.DictReader(line for line in text.splitlines() if not line.startswith("#")))


@cache
def models() -> dict[str, Architecture]:
    """Name to architecture. Raises ValidationError if the file is invalid."""
    return {row["name"]: Architecture.model_validate(facts(row)) for row in plan_document("models.yaml")["models"]}


@lru_cache(maxsize=64)
def model(name: str) -> Architecture | None:
    """The architecture with that name, alias or Hub repository, under the name asked; None for any other.

    Also of a repository with its weights quantised, a later release, and names without hyphens such as llama3.1:8b.
    """
    known = _listed(name)
    if known is not None:
        return known
    plain_name, weights = checkpoint.quantised(name)
    same = _listed(plain_name)
    row = same or _listed(checkpoint.undated(plain_name))
    if row is None:
        return None
    said = f"{name} is planned with the layers of {row.listed}, to which its name points: check them."
    if "/" not in name:
        said += f" The command names {row.checkpoint}: name the repository that you mean."
    more: dict[str, Any] = {
        "name": normal(name).replace(" ", "-").rpartition("/")[2],
        "checkpoint": name if "/" in name else row.checkpoint,
        "assumed": [*row.assumed, said],
        "context": row.context if same else None,  # later releases take longer sequences
    }
    return row.model_copy(update=more | ({"weights": weights} if weights else {}))


def _listed(name: str) -> Architecture | None:
    plain_name, short = normal(name), checkpoint.tail(name)
    if short not in aliases():
        short = _squashed().get(_squash(short), short)
    alias = aliases().get(short)
    key = alias.model if alias else short
    for row in models().values():
        hub = _hub(row)
        if plain_name in (row.name, normal(hub or "")) or key == row.name:
            found = _asked(row, name, (alias.hub if alias else None) or hub)
            return found.model_copy(update={"context": alias.context}) if alias and alias.context else found
    return None


def _squash(name: str) -> str:
    return re.sub(r"[^a-z0-9.]", "", name)


@cache
def _squashed() -> dict[str, str]:
    """Names and aliases by their letters, digits and points."""
    return {_squash(name): name for name in (*aliases(), *models())}


def _asked(row: Architecture, asked: str, hub: str | None) -> Architecture:
    """A listed architecture under the name asked, which is said to borrow it where it is another checkpoint."""
    name = normal(asked).replace(" ", "-").rpartition("/")[2]
    served = checkpoint.repository(asked, hub) if hub else None
    said = f"{name} has the layers of {row.name}: they, and the figures measured with them, are used for it."
    other = normal(served or "") != normal(_hub(row) or "")
    more = {
        "name": name,
        "listed": row.name,
        "checkpoint": served,
        "assumed": [*row.assumed, *([said] if other else [])],
    }
    return row.model_copy(update=more)


def _hub(row: Architecture) -> str | None:
    """The repository of a listed model, which begins its source; None for one that was only described in a paper."""
    name = row.source.partition(";")[0].partition(",")[0]
    return name if re.fullmatch(r"[\w.-]+/[\w.-]+", name) else None


@cache
def aliases() -> dict[str, Alias]:
    """Other names to listed ones."""
    rows = plan_document("aliases.yaml").items()
    return {name: Alias.model_validate(row if isinstance(row, dict) else {"model": row}) for name, row in rows}


def similar_models(name: str) -> list[str]:
    """Listed names that resemble the given one, for a hint."""
    tail = normal(name).rpartition("/")[2]
    return difflib.get_close_matches(tail, models(), n=4, cutoff=0.4) or sorted(models())


@cache
def calibrations() -> tuple[Calibration, ...]:
    """Every fitted set of shares."""
    return tuple(Calibration.model_validate(row) for row in plan_document("calibration.yaml"))


def calibration(facts: GpuFacts) -> Calibration | None:
    """The shares for this GPU's architecture; None if nothing was measured."""
    return next((row for row in calibrations() if facts.architecture in row.architectures), None)


@cache
def prices() -> tuple[Price, ...]:
    """Every row of the price list."""
    return tuple(Price.model_validate(row) for row in price_rows())


@cache
def engine(name: str = "vllm") -> Engine:
    """Options, weight formats and overheads of that engine."""
    raw = plan_document("serving.yaml")
    return Engine.model_validate(
        {
            "name": name,
            **raw["engines"][name],
            "formats": [facts(row) for row in raw["formats"]],
            **{key: raw[key] for key in ("utilization", "block_tokens", "overhead_bytes", "per_layer_s", "published")},
        }
    )


@cache
def serving_shares() -> ServingShares:
    """Fractions of the datasheet's rates that serving engines reach."""
    return ServingShares.model_validate(plan_document("serving_shares.yaml"))


@cache
def collectives() -> CollectiveShares:
    """Curves of NCCL collectives by kind of link."""
    return CollectiveShares.model_validate(plan_document("collectives.yaml"))


@cache
def techniques() -> tuple[Technique, ...]:
    """The catalogue of techniques."""
    return tuple(Technique.model_validate(facts(row)) for row in plan_document("techniques.yaml")["techniques"])
