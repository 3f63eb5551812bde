"""Additions for the conformance suite: other kinds of content, resources, prompts, conversations."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import secrets
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import mcp_types as types
from conformance_tools import PNG
from mcp.shared.exceptions import MCPError
from mcp_types.jsonrpc import MISSING_REQUIRED_CLIENT_CAPABILITY

from aisp_mcp.front.mcp.parts.base import Caller, Part, Request
from aisp_mcp.server.registry import Tool

KEY = secrets.token_bytes(32)
PATTERNS = {"test_prompt_with_arguments": ["paris", "park", "party"]}
USER = "user"


def form(message: str, **fields: dict[str, Any]) -> types.ElicitRequest:
    schema = {"type": "object", "properties": fields, "required": list(fields)}
    return types.ElicitRequest(params=types.ElicitRequestFormParams(message=message, requested_schema=schema))


def sampling(prompt: str, tokens: int = 100) -> types.CreateMessageRequest:
    message = types.SamplingMessage(role=USER, content=types.TextContent(type="text", text=prompt))
    return types.CreateMessageRequest(params=types.CreateMessageRequestParams(messages=[message], max_tokens=tokens))


ROOTS = types.ListRootsRequest()
NAME = form("What is your name?", name={"type": "string"})


def text(message: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=message)])


def seal(state: str) -> str:
    return f"{state}.{hmac.new(KEY, state.encode(), hashlib.sha256).hexdigest()}"


def unseal(sealed: str | None) -> str | None:
    """The state we gave out. Raises MCPError for any other."""
    if sealed is None:
        return None
    state = sealed.rpartition(".")[0]
    if not hmac.compare_digest(seal(state), sealed):
        raise MCPError(types.INVALID_PARAMS, "This requestState was not made here.")
    return state


def _capable(request: Request, name: str) -> bool:
    capabilities = request.session.client_capabilities
    return capabilities is not None and getattr(capabilities, name) is not None


class Conversations:
    """The tools that talk with the client in the middle of a call, one method each."""

    async def test_tool_with_logging(self, params: Any, request: Request) -> types.CallToolResult:
        for message in ("Tool execution started", "Tool processing data", "Tool execution completed"):
            await request.session.send_log_message("info", message, related_request_id=request.request_id)
            await asyncio.sleep(0.05)
        return text("logged")

    test_logging_tool = test_tool_with_logging

    async def test_sampling(self, params: Any, request: Request) -> types.CallToolResult:
        message = types.SamplingMessage(
            role=USER, content=types.TextContent(type="text", text=params.arguments["prompt"])
        )
        answer = await request.session.create_message([message], max_tokens=100, related_request_id=request.request_id)
        return text(f"LLM response: {getattr(answer.content, 'text', answer.content)}")

    async def _elicit(self, request: Request, message: str, fields: dict[str, Any], required: list[str]) -> Any:
        schema = {"type": "object", "properties": fields, "required": required}
        return await request.session.elicit_form(message, schema, request.request_id)

    async def test_elicitation(self, params: Any, request: Request) -> types.CallToolResult:
        fields = {name: {"type": "string", "description": name} for name in ("username", "email")}
        answer = await self._elicit(request, params.arguments["message"], fields, list(fields))
        return text(f"User response: action={answer.action}, content={answer.content}")

    async def test_elicitation_sep1034_defaults(self, params: Any, request: Request) -> types.CallToolResult:
        fields = {
            "name": {"type": "string", "default": "John Doe"},
            "age": {"type": "integer", "default": 30},
            "score": {"type": "number", "default": 95.5},
            "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
            "verified": {"type": "boolean", "default": True},
        }
        answer = await self._elicit(request, "Please review", fields, [])
        return text(f"Elicitation completed: action={answer.action}, content={answer.content}")

    async def test_elicitation_sep1330_enums(self, params: Any, request: Request) -> types.CallToolResult:
        plain = ["option1", "option2", "option3"]
        titled = [
            {"const": f"value{i}", "title": f"{word} Option"} for i, word in enumerate(("First", "Second", "Third"), 1)
        ]
        fields = {
            "untitledSingle": {"type": "string", "enum": plain},
            "titledSingle": {"type": "string", "oneOf": titled},
            "legacyEnum": {
                "type": "string",
                "enum": ["opt1", "opt2", "opt3"],
                "enumNames": ["Option One", "Option Two", "Option Three"],
            },
            "untitledMulti": {"type": "array", "items": {"type": "string", "enum": plain}},
            "titledMulti": {"type": "array", "items": {"anyOf": titled}},
        }
        answer = await self._elicit(request, "Please choose", fields, [])
        return text(f"Elicitation completed: action={answer.action}, content={answer.content}")

    async def test_reconnection(self, params: Any, request: Request) -> types.CallToolResult:
        if request.close_sse_stream is not None:
            await request.close_sse_stream()
        await asyncio.sleep(0.2)
        return text("Reconnection test completed.")

    async def test_missing_capability(self, params: Any, request: Request) -> types.CallToolResult:
        if not _capable(request, "sampling"):
            needed = {"requiredCapabilities": {"sampling": {}}}
            raise MCPError(MISSING_REQUIRED_CLIENT_CAPABILITY, "This needs sampling.", needed)
        return text("sampling is there")

    async def test_streaming_elicitation(self, params: Any, request: Request) -> Any:
        return self._once(params, {"user_name": NAME})

    def _once(self, params: Any, requests: dict[str, Any], state: str | None = None) -> Any:
        """The first round asks; the second, with every answer and the state, is the result."""
        given = params.input_responses or {}
        if all(name in given for name in requests) and unseal(params.request_state) == state:
            answers = {name: given[name].model_dump(mode="json", exclude_none=True) for name in requests}
            return text(f"state-ok {json.dumps(answers)}")
        return types.InputRequiredResult(input_requests=requests, request_state=state and seal(state))

    async def test_input_required_result_elicitation(self, params: Any, request: Request) -> Any:
        return self._once(params, {"user_name": NAME})

    async def test_input_required_result_sampling(self, params: Any, request: Request) -> Any:
        return self._once(params, {"capital_question": sampling("What is the capital of France?")})

    async def test_input_required_result_list_roots(self, params: Any, request: Request) -> Any:
        return self._once(params, {"client_roots": ROOTS})

    async def test_input_required_result_request_state(self, params: Any, request: Request) -> Any:
        return self._once(params, {"confirm": form("Please confirm", ok={"type": "boolean"})}, "asked")

    async def test_input_required_result_tampered_state(self, params: Any, request: Request) -> Any:
        return self._once(params, {"confirm": form("Please confirm", ok={"type": "boolean"})}, "tamper")

    async def test_input_required_result_multiple_inputs(self, params: Any, request: Request) -> Any:
        requests = {"user_name": NAME, "greeting": sampling("Generate a greeting", 50), "client_roots": ROOTS}
        return self._once(params, requests, "many")

    async def test_input_required_result_multi_round(self, params: Any, request: Request) -> Any:
        state, given = unseal(params.request_state), params.input_responses or {}
        if state == "round-2" and "step2" in given:
            return text("both rounds are done")
        if state == "round-1" and "step1" in given:
            colour = form("Step 2: What is your favorite color?", color={"type": "string"})
            return types.InputRequiredResult(input_requests={"step2": colour}, request_state=seal("round-2"))
        name = form("Step 1: What is your name?", name={"type": "string"})
        return types.InputRequiredResult(input_requests={"step1": name}, request_state=seal("round-1"))

    async def test_input_required_result_capabilities(self, params: Any, request: Request) -> Any:
        able = {"elicitation": ("name", NAME), "sampling": ("greeting", sampling("Generate a greeting"))}
        requests = dict(entry for capability, entry in able.items() if _capable(request, capability))
        return self._once(params, requests) if requests else text("The client can do neither.")


class Fixtures(Part):
    """The suite's resources, prompts and results; outermost of all parts."""

    def __init__(self) -> None:
        self._talks = Conversations()

    def tool_meta(self, tool: Tool) -> dict[str, Any]:
        return {}

    async def intercept_tool_call(
        self, params: types.CallToolRequestParams, ctx: Request, call_next: Callable[[Request], Awaitable[Any]]
    ) -> Any:
        talk = getattr(self._talks, params.name, None)
        if talk is not None:
            return await talk(params, ctx)
        if params.name == "failing_job" and not _declares_tasks(ctx):
            needed = {"requiredCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}}}
            raise MCPError(MISSING_REQUIRED_CLIENT_CAPABILITY, "This job is a task or nothing.", needed)
        if params.name == "test_tool_with_task":
            given = (params.input_responses or {}).get("user_name")
            if given is None:
                return types.InputRequiredResult(input_requests={"user_name": NAME})
            params.arguments = {"user_name": given.content["name"]}
        return _as_content(await call_next(ctx))

    def list_resources(self, caller: Caller) -> Sequence[types.Resource]:
        return [
            types.Resource(uri=uri, name=uri.rpartition("/")[2], description="A fixture.", mime_type=kind)
            for uri, kind in (
                ("test://static-text", "text/plain"),
                ("test://static-binary", "image/png"),
                ("test://watched-resource", "text/plain"),
            )
        ]

    def list_templates(self) -> Sequence[types.ResourceTemplate]:
        uri = "test://template/{id}/data"
        return [types.ResourceTemplate(uri_template=uri, name="template", mime_type="application/json")]

    def read_resource(self, uri: str, caller: Caller) -> types.ReadResourceResult | None:
        if uri == "test://static-binary":
            return types.ReadResourceResult(
                contents=[types.BlobResourceContents(uri=uri, mime_type="image/png", blob=PNG)]
            )
        parts = uri.split("/")
        if uri == "test://static-text":
            body, kind = "This is the content of the static text resource.", "text/plain"
        elif uri == "test://watched-resource":
            body, kind = "Watched.", "text/plain"
        elif parts[:3] == ["test:", "", "template"] and parts[4:] == ["data"]:
            data = {"id": parts[3], "templateTest": True, "data": f"Data for ID: {parts[3]}"}
            body, kind = json.dumps(data), "application/json"
        else:
            return None
        return types.ReadResourceResult(contents=[types.TextResourceContents(uri=uri, mime_type=kind, text=body)])

    def list_prompts(self) -> Sequence[types.Prompt]:
        arguments = {
            "test_prompt_with_arguments": ["arg1", "arg2"],
            "test_prompt_with_embedded_resource": ["resourceUri"],
        }
        names = [
            *("test_simple_prompt", "test_prompt_with_arguments", "test_prompt_with_embedded_resource"),
            *("test_prompt_with_image", "test_input_required_result_prompt"),
        ]
        return [
            types.Prompt(
                name=name,
                description=f"Conformance fixture {name}.",
                arguments=[types.PromptArgument(name=a, required=True) for a in arguments.get(name, [])] or None,
            )
            for name in names
        ]

    def get_prompt(
        self, name: str, arguments: dict[str, str], caller: Caller
    ) -> types.GetPromptResult | types.InputRequiredResult | None:
        if name == "test_simple_prompt":
            return _prompt(_text("This is a simple prompt for testing."))
        if name == "test_prompt_with_arguments":
            text = f"Prompt with arguments: arg1='{arguments.get('arg1')}', arg2='{arguments.get('arg2')}'"
            return _prompt(_text(text))
        if name == "test_prompt_with_embedded_resource":
            body = types.TextResourceContents(
                uri=arguments["resourceUri"], mime_type="text/plain", text="Embedded resource content for testing."
            )
            embedded = types.EmbeddedResource(type="resource", resource=body)
            return _prompt(embedded, _text("Please process the embedded resource above."))
        if name == "test_prompt_with_image":
            image = types.ImageContent(type="image", data=PNG, mime_type="image/png")
            return _prompt(image, _text("Please analyze the image above."))
        if name != "test_input_required_result_prompt":
            return None
        given = ((caller.request.params or {}).get("inputResponses") or {}).get("user_context")
        if given is None:
            ask = form("What context should the prompt use?", context={"type": "string"})
            return types.InputRequiredResult(input_requests={"user_context": ask})
        return _prompt(_text(f"In this context: {given['content']['context']}"))

    def complete(self, params: types.CompleteRequestParams, caller: Caller) -> types.Completion | None:
        known = PATTERNS.get(getattr(params.ref, "name", ""), [])
        words = [word for word in known if word.startswith(params.argument.value)]
        return types.Completion(values=words, total=len(words), has_more=False)


def _declares_tasks(request: Request) -> bool:
    capabilities = request.session.client_capabilities
    return "io.modelcontextprotocol/tasks" in ((capabilities and capabilities.extensions) or {})


def _as_content(result: Any) -> Any:
    """Our result, its blocks replaced by those the tool gave."""
    if not isinstance(result, types.CallToolResult) or result.is_error:
        return result
    inner = (result.structured_content or {}).get("result")
    if not isinstance(inner, dict) or "content" not in inner:
        return result
    return types.CallToolResult.model_validate({"content": inner["content"]})


def _text(message: str) -> types.TextContent:
    return types.TextContent(type="text", text=message)


def _prompt(*blocks: Any) -> types.GetPromptResult:
    return types.GetPromptResult(messages=[types.PromptMessage(role=USER, content=block) for block in blocks])
