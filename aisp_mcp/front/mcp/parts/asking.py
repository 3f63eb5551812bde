"""Ask the person behind the client: in the middle of the call where the protocol allows, else by a second round."""

from __future__ import annotations

import anyio
import mcp_types as types
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from aisp_mcp.front.mcp.parts.base import Request

KEY = "confirm"
# Clients end a call after 60 s; whoever has not answered by then is treated as not there.
PATIENCE_S = 45.0
SCHEMA: types.ElicitRequestedSchema = {
    "type": "object",
    "properties": {"confirm": {"type": "boolean", "title": "Go ahead", "default": False}},
    "required": ["confirm"],
}


def can_ask(request: Request) -> bool:
    """True if this client can show a form."""
    capabilities = request.session.client_capabilities
    elicitation = capabilities.elicitation if capabilities else None
    # Before modes were told apart, the bare capability meant forms.
    return elicitation is not None and (elicitation.form is not None or elicitation.url is None)


def is_modern(request: Request) -> bool:
    """True if this request is of the era without a handshake, in which a server asks by answering."""
    return request.protocol_version in MODERN_PROTOCOL_VERSIONS


def answered(params: types.CallToolRequestParams) -> bool | None:
    """Answer of the person to the question of an earlier round; None if there was none."""
    response = (params.input_responses or {}).get(KEY)
    return None if response is None else _agreed(response)


def question(text: str) -> types.InputRequiredResult:
    """The answer that asks. No state goes with it: the repeated call says everything again."""
    form = types.ElicitRequestFormParams(message=text, requested_schema=SCHEMA)
    return types.InputRequiredResult(input_requests={KEY: types.ElicitRequest(params=form)})


async def ask(request: Request, text: str) -> bool | None:
    """Ask now, over the connection of this call; None when nobody answers in time."""
    with anyio.move_on_after(PATIENCE_S):
        return _agreed(await request.session.elicit_form(text, SCHEMA, request.request_id))
    return None


def _agreed(response: object) -> bool:
    return (
        isinstance(response, types.ElicitResult)
        and response.action == "accept"
        and (response.content or {}).get("confirm") is True
    )
