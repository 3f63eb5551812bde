"""Base classes of records and parameters."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """An immutable value. Unknown fields are an error, so a record written by a newer version is detected."""

    # Schemas are built at first use: listing tools does not need the result models.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class Params(BaseModel):
    """The arguments of a tool: one flat model, strict types, unknown names refused with a did-you-mean."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True, serialize_by_alias=True)
