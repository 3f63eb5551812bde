"""Bundles: a verdict with its evidence as one signed file, for example to attach to a pull request."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from aisp_mcp.optimize.records import Bundle, BundleReport
from aisp_mcp.records import Params
from aisp_mcp.server.context import Context
from aisp_mcp.server.registry import READS, WRITES, ReadingParams, S, tool


class BundleParams(Params):
    run_id: str | None = Field(default=None, description="Or an ended optimisation. Default: newest run.")
    to: str | None = Field(default=None, description="Default: in the store.")


@tool(cli="bench bundle", effect=WRITES, cost=S, next=("aisp_verify_bundle",))
def aisp_bench_bundle(p: BundleParams, ctx: Context) -> Bundle:
    """Write a run or an optimisation with logs, sources and environment as one signed file."""
    from aisp_mcp.optimize.bundle import bundles
    from aisp_mcp.runs import stored
    from aisp_mcp.store.records.verdict_row import ANY_KIND

    run = p.run_id or stored.runs(ctx, None, 1, ANY_KIND)[0].id
    write = bundles.of_optimization if run.startswith("o_") else bundles.of_run
    return write(ctx, run, p.to)


class VerifyBundleParams(ReadingParams):
    path: str
    key: str | None = Field(default=None, description="Fingerprint that must have signed it.")


@tool(cli="verify-bundle", effect=READS, cost=S, next=("aisp_verify_candidate",))
def aisp_verify_bundle(p: VerifyBundleParams, ctx: Context) -> BundleReport:
    """Check a bundle anywhere, without torch: every byte, its signature, and that its claims follow from its rounds."""
    from aisp_mcp.optimize.bundle import bundles

    return bundles.verify(Path(p.path).expanduser(), p.key)
