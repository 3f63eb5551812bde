"""The tools the official conformance suite calls by name, loaded like a user's own: AISP_TOOL_MODULES.

They are ordinary tools: arguments, errors, jobs and questions go through our own layers. What a result looks like on
the wire where the suite wants more than our one text block is made by conformance_part.py.
"""

from __future__ import annotations

import base64
import os
import time
from typing import Any, Literal

from pydantic import Field

from aisp_mcp.errors import AispError
from aisp_mcp.jobs.questions import Question
from aisp_mcp.records import Params, Record
from aisp_mcp.server.context import Context
from aisp_mcp.server.registry import MS, READS, RUNS, JobParams, JobSpec, S, tool

PNG = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="  # one red pixel
)
WAV = base64.b64encode(b"RIFF$\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0@\x1f\0\0@\x1f\0\0\x01\0\x08\0data\0\0\0\0").decode()
IMAGE = {"type": "image", "data": PNG, "mimeType": "image/png"}


class Content(Record):
    """Blocks of a tool result, as they go over the wire."""

    content: list[dict[str, Any]]


class Nothing(Params):
    pass


def text(message: str) -> Content:
    return Content(content=[{"type": "text", "text": message}])


def resource(uri: str, kind: str, body: str) -> dict[str, Any]:
    return {"type": "resource", "resource": {"uri": uri, "mimeType": kind, "text": body}}


FIXED = {
    "test_simple_text": text("This is a simple text response for testing."),
    "test_image_content": Content(content=[IMAGE]),
    "test_audio_content": Content(content=[{"type": "audio", "data": WAV, "mimeType": "audio/wav"}]),
    "test_embedded_resource": Content(
        content=[resource("test://embedded-resource", "text/plain", "This is an embedded resource content.")]
    ),
    "test_multiple_content_types": Content(
        content=[
            {"type": "text", "text": "Multiple content types test:"},
            IMAGE,
            resource("test://mixed-content-resource", "application/json", '{"test":"data","value":123}'),
        ]
    ),
}
# Tools whose whole point is a conversation with the client: conformance_part.py holds it, and gives this result.
TALKS = [
    *("test_tool_with_logging", "test_logging_tool", "test_elicitation_sep1034_defaults"),
    *("test_elicitation_sep1330_enums", "test_reconnection", "test_missing_capability", "test_streaming_elicitation"),
    *(
        f"test_input_required_result_{name}"
        for name in (
            *("elicitation", "sampling", "list_roots", "request_state", "multiple_inputs", "multi_round"),
            *("tampered_state", "capabilities"),
        )
    ),
]


def _make(name: str, result: Content) -> None:
    def fn(p: Nothing, ctx: Context) -> Content:
        return result

    fn.__name__, fn.__doc__, fn.__module__ = name, f"Conformance fixture {name}.", __name__
    tool(cli=f"fixture {name.replace('_', '-')}", effect=READS, cost=MS)(fn)


for _name, _result in FIXED.items():
    _make(_name, _result)
for _name in TALKS:
    _make(_name, text(f"{_name} is done."))


class PromptParams(Params):
    prompt: str = Field(min_length=1)


@tool(cli="fixture test-sampling", effect=READS, cost=S)
def test_sampling(p: PromptParams, ctx: Context) -> Content:
    """Conformance fixture: ask the client's model."""
    return text(p.prompt)


class MessageParams(Params):
    message: str


@tool(cli="fixture test-elicitation", effect=READS, cost=S)
def test_elicitation(p: MessageParams, ctx: Context) -> Content:
    """Conformance fixture: ask the client's user."""
    return text(p.message)


@tool(cli="fixture test-error-handling", effect=READS, cost=MS)
def test_error_handling(p: Nothing, ctx: Context) -> Content:
    """Conformance fixture: always an error."""
    raise AispError("INTENDED", "This tool intentionally returns an error for testing.")


class SchemaParams(Params):
    """Its schema on the wire is the suite's, see conformance_part.py."""

    name: str | None = None
    address: dict[str, str] | None = None
    contactMethod: Literal["phone", "email"] | None = None
    phone: str | None = None
    email: str | None = None


@tool(cli="fixture json-schema", effect=READS, cost=MS)
def json_schema_2020_12_tool(p: SchemaParams, ctx: Context) -> Content:
    """Conformance fixture with every keyword of JSON Schema 2020-12 that may occur."""
    return text(p.model_dump_json())


class RegionParams(Params):
    region: str
    query: str = ""


@tool(cli="fixture region", effect=READS, cost=MS)
def test_x_mcp_header(p: RegionParams, ctx: Context) -> Content:
    """Conformance fixture whose argument travels in a header too."""
    return text(p.region)


@tool(cli="fixture progress", effect=RUNS, cost=S, job=JobSpec(timeout_s=30))
def test_tool_with_progress(p: JobParams, ctx: Context) -> Content:
    """Conformance fixture: a job that says how far it is."""
    for done in (0, 50, 100):
        ctx.progress(done, 100, f"{done} of 100")
        time.sleep(0.5)
    return text("done")


class GreetParams(Params):
    name: str


@tool(cli="fixture greet", effect=READS, cost=MS)
def greet(p: GreetParams, ctx: Context) -> Content:
    """Conformance fixture: a greeting, at once."""
    return text(f"Hello, {p.name}!")


class ComputeParams(JobParams):
    seconds: float = Field(ge=0, le=600)
    label: str = ""


@tool(cli="fixture compute", effect=RUNS, cost=S, job=JobSpec(timeout_s=600))
def slow_compute(p: ComputeParams, ctx: Context) -> Content:
    """Conformance fixture: a job that takes as long as it is told."""
    time.sleep(p.seconds)
    return text(f"{p.label} took {p.seconds:g} s")


@tool(cli="fixture fail", effect=RUNS, cost=S, job=JobSpec(timeout_s=60))
def failing_job(p: JobParams, ctx: Context) -> Content:
    """Conformance fixture: a job that ends with an error of the tool."""
    raise AispError("INTENDED", "This job intentionally fails.")


@tool(cli="fixture crash", effect=RUNS, cost=S, job=JobSpec(timeout_s=60))
def protocol_error_job(p: JobParams, ctx: Context) -> Content:
    """Conformance fixture: a job whose process dies without an answer."""
    os._exit(70)


class DeleteParams(JobParams):
    filename: str


def _asked(ctx: Context, *names: str) -> dict[str, Any]:
    fields = {"confirm": {"type": "boolean"}}
    replies = ctx.ask({name: Question(message=f"{name}: sure?", fields=fields) for name in names}, 30)
    if replies is None:
        raise AispError("NOBODY", "Nobody answered.")
    return {name: reply.model_dump(mode="json") for name, reply in replies.items()}


@tool(cli="fixture delete", effect=RUNS, cost=S, job=JobSpec(timeout_s=60))
def confirm_delete(p: DeleteParams, ctx: Context) -> Content:
    """Conformance fixture: a job that asks its user one question."""
    return text(f"{p.filename}: {_asked(ctx, 'sure')}")


@tool(cli="fixture multi", effect=RUNS, cost=S, job=JobSpec(timeout_s=60))
def multi_input(p: JobParams, ctx: Context) -> Content:
    """Conformance fixture: a job that asks two questions at once."""
    return text(f"{_asked(ctx, 'first', 'second')}")


class NamedParams(JobParams):
    user_name: str | None = None


@tool(cli="fixture composed", effect=RUNS, cost=S, job=JobSpec(timeout_s=60))
def test_tool_with_task(p: NamedParams, ctx: Context) -> Content:
    """Conformance fixture: asks before it becomes a job."""
    return text(f"Hello, {p.user_name}!")
