"""The server assembled from parts: lists are joined, names are looked up in order, errors use our wording."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mcp_types as types
import pytest
from front_support import ERAS
from mcp import Client
from mcp.server.extension import MethodBinding
from mcp.shared.exceptions import MCPError

from aisp_mcp.errors import NotFound, UsageError
from aisp_mcp.front.mcp.parts.base import Caller, Part
from aisp_mcp.front.mcp.server import Handlers, build_server
from aisp_mcp.server.context import Context
from aisp_mcp.server.registry import Tool

pytestmark = pytest.mark.anyio
BOTH = pytest.mark.parametrize("era", ERAS)
NOT_FOUND = {"legacy": -32002, "auto": -32602}


class Words(Part):
    """One resource, one prompt and one completion, all named after it."""

    def __init__(self, name: str) -> None:
        self.name = name

    def tool_meta(self, tool: Tool) -> dict[str, Any]:
        return {f"test/{self.name}": True} if tool.name == "aisp_demo_echo" else {}

    def list_resources(self, caller: Caller) -> Sequence[types.Resource]:
        return [types.Resource(uri=f"test://{self.name}", name=self.name)]

    def list_templates(self) -> Sequence[types.ResourceTemplate]:
        return [types.ResourceTemplate(uri_template=f"test://{self.name}/{{x}}", name=self.name)]

    def read_resource(self, uri: str, caller: Caller) -> types.ReadResourceResult | None:
        if not uri.startswith(f"test://{self.name}"):
            return None
        if uri.endswith("/gone"):
            raise NotFound("GONE", "It was here.", "Look elsewhere.")
        if uri.endswith("/bug"):
            raise RuntimeError("secret detail")
        return types.ReadResourceResult(contents=[types.TextResourceContents(uri=uri, text=caller.ctx.principal)])

    def list_prompts(self) -> Sequence[types.Prompt]:
        return [types.Prompt(name=self.name)]

    def get_prompt(self, name: str, arguments: dict[str, str], caller: Caller) -> types.GetPromptResult | None:
        if name != self.name:
            return None
        if "bad" in arguments:
            raise UsageError("BAD", "That is bad.", "Say something good.")
        content = types.TextContent(type="text", text=f"I am {self.name}.")
        return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=content)])

    def complete(self, params: types.CompleteRequestParams, caller: Caller) -> types.Completion | None:
        if getattr(params.ref, "name", None) != self.name:
            return None
        return types.Completion(values=[f"{self.name}{i}" for i in range(250)])


def client(ctx: Context, era: str, *parts: Part) -> Client:
    return Client(build_server(Handlers(ctx, lambda _: "somebody", parts)), mode=era)


@BOTH
async def test_lists_are_joined_in_the_order_of_the_parts(ctx: Context, era: str) -> None:
    async with client(ctx, era, Words("b"), Words("a")) as c:
        assert [resource.name for resource in (await c.list_resources()).resources] == ["b", "a"]
        assert [
            resource_template.name for resource_template in (await c.list_resource_templates()).resource_templates
        ] == ["b", "a"]
        assert [prompt.name for prompt in (await c.list_prompts()).prompts] == ["b", "a"]
        [echo] = [tool for tool in (await c.list_tools()).tools if tool.name == "aisp_demo_echo"]
        assert echo.meta == {"test/b": True, "test/a": True}


@BOTH
async def test_each_name_is_answered_by_the_part_it_belongs_to(ctx: Context, era: str) -> None:
    async with client(ctx, era, Words("b"), Words("a")) as c:
        [read] = (await c.read_resource("test://a")).contents
        assert read.text == "somebody"
        prompt = await c.get_prompt("a")
        assert prompt.messages[0].content.text == "I am a."
        completed = await c.complete(types.PromptReference(type="ref/prompt", name="a"), {"name": "x", "value": ""})
        assert (len(completed.completion.values), completed.completion.total, completed.completion.has_more) == (
            100,
            250,
            True,
        )
        none = await c.complete(types.PromptReference(type="ref/prompt", name="z"), {"name": "x", "value": ""})
        assert none.completion.values == []


@BOTH
@pytest.mark.parametrize("uri", ["test://z", "test://a/gone"])
async def test_a_missing_resource_has_the_code_of_its_era(ctx: Context, era: str, uri: str) -> None:
    async with client(ctx, era, Words("a")) as c:
        with pytest.raises(MCPError) as caught:
            await c.read_resource(uri)
    assert caught.value.code == NOT_FOUND[era]
    assert caught.value.data["uri"] == uri


@BOTH
async def test_what_goes_wrong_is_said_in_our_words(ctx: Context, era: str) -> None:
    async with client(ctx, era, Words("a")) as c:
        with pytest.raises(MCPError, match="fail") as bug:
            await c.read_resource("test://a/bug")
        assert (bug.value.code, "secret" in str(bug.value)) == (-32603, False)
        with pytest.raises(MCPError, match="That is bad") as bad:
            await c.get_prompt("a", {"bad": "yes"})
        assert bad.value.data == {"code": "BAD", "hint": "Say something good."}
        with pytest.raises(MCPError, match="There is no prompt"):
            await c.get_prompt("z")
        with pytest.raises(MCPError, match="cursor"):
            await c.list_prompts(cursor="x")


@BOTH
async def test_what_no_part_has_is_not_declared(ctx: Context, era: str) -> None:
    async with client(ctx, era, Part()) as c:
        capabilities = c.server_capabilities
        assert capabilities.tools is not None
        assert (capabilities.resources, capabilities.prompts, capabilities.completions) == (None, None, None)


class Named(Part):
    identifier = "example.org/named"

    def methods(self) -> Sequence[MethodBinding]:
        async def answer(request: Any, params: Any) -> dict[str, Any]:
            return {}

        return [MethodBinding("named/get", types.RequestParams, answer)]


class AlsoNamed(Named):
    identifier = "example.org/also"


@pytest.mark.parametrize("second", [Named, AlsoNamed])
def test_two_parts_cannot_be_the_same_thing(ctx: Context, second: type[Part]) -> None:
    with pytest.raises(ValueError, match="two parts"):
        build_server(Handlers(ctx, parts=[Named(), second()]))
