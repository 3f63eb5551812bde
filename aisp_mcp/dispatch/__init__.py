"""From a name and raw arguments to an envelope: validate, run or submit, build the answer, shorten it last."""

from aisp_mcp.dispatch.arguments import validate
from aisp_mcp.dispatch.calls import execute
from aisp_mcp.dispatch.envelopes import to_json
from aisp_mcp.dispatch.loading import load_catalog

__all__ = ["execute", "load_catalog", "to_json", "validate"]
