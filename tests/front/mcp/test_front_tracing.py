"""A caller's trace reaches its job, and spans reach the collector that the user names."""

from __future__ import annotations

import http.server
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from front_support import Connect

from aisp_mcp.jobs import environment, tracing
from aisp_mcp.server.context import Context
from aisp_mcp.settings import Settings

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"


async def environment_of_a_job(client: Any, tmp_path: Path, meta: dict[str, Any] | None) -> dict[str, str]:
    """Environment that a job's worker was started with, read while it waits at a gate."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    held = os.open(gate, os.O_RDWR)
    arguments = {"steps": 1, "gate": str(gate), "wait_s": 0}
    answer = await client.call_tool("aisp_demo_count", arguments, meta=meta)
    job_id = answer.structured_content["job"]["job_id"]
    store = Context(settings=Settings.from_env()).store
    row = store.queue.row(job_id)
    assert row is not None
    os.write(held, b"x")
    await client.call_tool("aisp_job_wait", {"job_ids": [job_id]})
    os.close(held)
    environ: dict[str, str] = json.loads(row["env"])
    return environ


@pytest.mark.parametrize(("era", "over"), [("legacy", "memory"), ("auto", "memory"), ("auto", "stdio")])
@pytest.mark.anyio
async def test_the_callers_trace_reaches_the_job(connect: Connect, era: str, over: str, tmp_path: Path) -> None:
    async with connect(era, over) as client:
        meta = {"traceparent": PARENT, "tracestate": "vendor=1"}
        env = await environment_of_a_job(client, tmp_path, meta)
    assert env["TRACEPARENT"].split("-")[1] == TRACE
    assert env["TRACESTATE"] == "vendor=1"


@pytest.mark.parametrize("bad", [None, "", "nonsense", PARENT.replace("4", "x"), f"00-{'0' * 32}-{SPAN}-01", 7])
@pytest.mark.anyio
async def test_what_is_no_trace_is_not_handed_on(connect: Connect, tmp_path: Path, bad: Any) -> None:
    async with connect() as client:
        meta = None if bad is None else {"traceparent": bad, "tracestate": "x=1\nY=2"}
        env = await environment_of_a_job(client, tmp_path, meta)
    assert "TRACEPARENT" not in env
    assert "TRACESTATE" not in env


def test_headers_for_the_collector_are_not_written_down() -> None:
    env = {"OTEL_EXPORTER_OTLP_HEADERS": "authorization=Basic x", "OTEL_SERVICE_NAME": "x"}
    assert environment.remembered(env) == {}
    assert environment.passed_on(env) == env


@pytest.mark.parametrize(
    ("env", "enabled"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://x"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_SDK_DISABLED": "true"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_TRACES_EXPORTER": "none"}, False),
    ],
)
def test_nothing_is_exported_unless_asked(env: dict[str, str], enabled: bool) -> None:
    assert tracing.enabled(env) is enabled


class Collector(http.server.ThreadingHTTPServer):
    """Keeps what is posted."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Taker)
        self.posted: list[tuple[str, bytes]] = []


class Taker(http.server.BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.posted.append((self.path, body))
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.anyio
async def test_spans_of_server_and_job_belong_to_the_callers_trace(
    connect: Connect, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="needs the otel extra")
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{collector.server_port}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
    async with connect(over="stdio") as client:
        done = await client.call_tool("aisp_demo_count", {"steps": 1, "wait_s": 40}, meta={"traceparent": PARENT})
        assert done.structured_content["status"] == "ok"
    spans = {}
    for path, body in collector.posted:
        assert path == "/v1/traces"
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            [service] = [a.value.string_value for a in resource.resource.attributes if a.key == "service.name"]
            for span in (span for scope in resource.scope_spans for span in scope.spans):
                spans[service, span.name] = span
    call, job = spans["aisp-mcp", "tools/call aisp_demo_count"], spans["aisp-job", "job aisp_demo_count"]
    assert call.trace_id.hex() == job.trace_id.hex() == TRACE
    assert (call.parent_span_id.hex(), job.parent_span_id) == (SPAN, call.span_id)


@pytest.mark.anyio
async def test_a_collector_that_is_not_there_holds_up_nobody(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the extra or without it."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    async with connect(over="stdio") as client:
        done = await client.call_tool("aisp_demo_count", {"steps": 1, "wait_s": 40})
    assert done.structured_content["status"] == "ok"
