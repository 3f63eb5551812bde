"""Models on the Hugging Face Hub."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from aisp_mcp.assist.hub.client import HubAnswer
from aisp_mcp.errors import UsageError
from aisp_mcp.server.context import Context
from aisp_mcp.server.registry import WRITES, JobParams, JobSpec, S, tool


class HubParams(JobParams):
    action: Literal["search", "trending", "download"]
    query: str | None = Field(default=None, max_length=200, description="Words to search, or ORG/NAME to download.")
    limit: int = Field(default=10, ge=1, le=50)
    include: list[str] = Field(default_factory=list, max_length=50, description="Patterns of files, such as *.json.")
    max_mb: float = Field(default=0, ge=0, description="A larger download is refused, with its size.")
    revision: str | None = Field(default=None, max_length=100)
    to: str | None = Field(default=None, description="Folder that gets models/. Default: AISP_HOME.")


@tool(
    cli="hf",
    effect=WRITES,
    cost=S,
    job=JobSpec(timeout_s=7200),
    needs=("network",),
    next=("aisp_inference_vllm", "aisp_inference_quantization"),
)
def aisp_hf(p: HubParams, ctx: Context) -> HubAnswer:
    """Search the Hugging Face Hub, list what is trending, or download a model's files up to a stated size.

    An interrupted download continues where it stopped. The token is read from HF_TOKEN or the library's own file.
    """
    from aisp_mcp.assist.hub import client
    from aisp_mcp.server import files

    if p.action != "trending" and not p.query:
        raise UsageError("NO_QUERY", f"action={p.action} needs a query.", "query: words to search, or ORG/NAME.")
    if p.action != "download":
        return client.listed(p.query if p.action == "search" else None, p.limit)
    folder = files.destination(p.to, ctx.settings.home / "models", ctx.allow_write)
    return client.download(p.query or "", folder, p.include, p.revision, p.max_mb)
