"""Answers of the model hub: metadata, and the files downloaded."""

from __future__ import annotations

from pydantic import Field

from aisp_mcp.records import Record


class HubModel(Record):
    """One model as the hub lists it."""

    id: str
    task: str | None = None
    downloads: int | None = Field(default=None, description="In the last 30 days.")
    likes: int | None = None
    trending_score: float | None = None
    gated: bool = False


class HubAnswer(Record):
    """Models of a search, or a download. bytes, files: size and number of the chosen files."""

    models: list[HubModel] = Field(default_factory=list)
    repository: str | None = None
    revision: str | None = Field(default=None, description="The commit that was downloaded.")
    folder: str | None = None
    files: int | None = None
    bytes: int | None = None
    bytes_fetched: int | None = Field(default=None, description="Less than bytes if some files already existed.")
