"""Ask the user a question: during the call if the protocol version allows it, else by a second call."""

from __future__ import annotations

import anyio
import mcp_types as types
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from aisp_mcp.front.mcp.parts.base import Request

KEY = "confirm"
# Clients end a call after 60 s; a user who has not answered well before is treated as absent.
ANSWER_LIMIT_S = 45.0
SCHEMA: types.ElicitRequestedSchema = {
    "type": "object",
    "properties": {"confirm": {"type": "boolean", "title": "Go ahead", "default": False}},
    "required": ["confirm"],
}


def can_ask(request: Request) -> bool:
    """True if this client can show a form."""
    capabilities = request.session.client_capabilities
    elicitation = capabilities.elicitation if capabilities else None
    # Before the protocol distinguished modes, the bare capability meant forms.
    return elicitation is not None and (elicitation.form is not None or elicitation.url is None)


def is_modern(request: Request) -> bool:
    """True for the protocol era without a handshake, in which a server asks by means of its answer."""
    return request.protocol_version in MODERN_PROTOCOL_VERSIONS


def given_answer(params: types.CallToolRequestParams) -> bool | None:
    """Return the user's answer to the question of an earlier call; None if there was no question."""
    response = (params.input_responses or {}).get(KEY)
    return None if response is None else _agreed(response)


def question(text: str) -> types.InputRequiredResult:
    """Return the answer that asks the question. It carries no state, because the repeated call is complete."""
    form = types.ElicitRequestFormParams(message=text, requested_schema=SCHEMA)
    return types.InputRequiredResult(input_requests={KEY: types.ElicitRequest(params=form)})


async def ask(request: Request, text: str) -> bool | None:
    """Ask over the connection of this call; None if the user does not answer in time."""
    with anyio.move_on_after(ANSWER_LIMIT_S):
        return _agreed(await request.session.elicit_form(text, SCHEMA, request.request_id))
    return None


def _agreed(response: object) -> bool:
    return (
        isinstance(response, types.ElicitResult)
        and response.action == "accept"
        and (response.content or {}).get("confirm") is True
    )
