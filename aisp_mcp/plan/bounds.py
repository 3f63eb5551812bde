"""Bounds that are checked but not shown in a schema, because nobody requests minus three GPUs, and each word costs
context.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field


def _unsaid(schema: dict[str, Any]) -> None:
    for word in ("minimum", "exclusiveMinimum", "maximum"):
        schema.pop(word, None)


Tokens = Annotated[int, Field(ge=1, le=10_000_000, json_schema_extra=_unsaid)]
Count = Annotated[int, Field(ge=1, json_schema_extra=_unsaid)]
Size = Annotated[int, Field(ge=1, le=100_000_000, json_schema_extra=_unsaid)]
Gpus = Annotated[int, Field(ge=1, le=65_536, json_schema_extra=_unsaid)]
Rank = Annotated[int, Field(ge=1, le=4096, json_schema_extra=_unsaid)]
Billions = Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False, json_schema_extra=_unsaid)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False, json_schema_extra=_unsaid)]
