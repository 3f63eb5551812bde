"""From a name and raw arguments to an envelope: validate, run or submit, build the answer, shorten it last."""

from aisp_mcp.dispatch.arguments import validate
from aisp_mcp.dispatch.calls import execute, start
from aisp_mcp.dispatch.envelopes import to_data, to_json
from aisp_mcp.dispatch.loading import load_catalog
from aisp_mcp.dispatch.pending import Pending, Show, follow, guarded, pauses
from aisp_mcp.dispatch.shorten import shorten
from aisp_mcp.dispatch.tickets import outcome, ticket, waiting

__all__ = [
    "Pending",
    "Show",
    "execute",
    "follow",
    "guarded",
    "load_catalog",
    "outcome",
    "pauses",
    "shorten",
    "start",
    "ticket",
    "to_data",
    "to_json",
    "validate",
    "waiting",
]
