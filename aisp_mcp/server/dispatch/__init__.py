"""From a name and raw arguments to an envelope: validate, run or submit, build the answer, shorten it last."""

from aisp_mcp.server.dispatch.arguments import validate
from aisp_mcp.server.dispatch.calls import declined, execute, offered, start
from aisp_mcp.server.dispatch.envelopes import to_data, to_json
from aisp_mcp.server.dispatch.loading import load_catalog, load_command, load_listed, load_tool
from aisp_mcp.server.dispatch.pending import (
    JobPending,
    Pending,
    Show,
    follow,
    guarded,
    outcome,
    pauses,
    supervisor,
    ticket,
    waiting,
)
from aisp_mcp.server.dispatch.schema import SHARED_HELP, input_schema, lean_schema
from aisp_mcp.server.dispatch.selection import Selection, is_open, reachable, select
from aisp_mcp.server.dispatch.shorten import kept_in, shorten

__all__ = [
    "SHARED_HELP",
    "JobPending",
    "Pending",
    "Selection",
    "Show",
    "declined",
    "execute",
    "follow",
    "guarded",
    "input_schema",
    "is_open",
    "kept_in",
    "lean_schema",
    "load_catalog",
    "load_command",
    "load_listed",
    "load_tool",
    "offered",
    "outcome",
    "pauses",
    "reachable",
    "select",
    "shorten",
    "start",
    "supervisor",
    "ticket",
    "to_data",
    "to_json",
    "validate",
    "waiting",
]
