"""Traces: the caller's trace reaches the job as TRACEPARENT, and spans are exported if the user names a collector.

Nothing is exported unless the standard variables of OpenTelemetry ask for it (OTEL_EXPORTER_OTLP_ENDPOINT or
OTEL_EXPORTER_OTLP_TRACES_ENDPOINT) and the `otel` extra is installed. The protocol library makes the server's spans.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Iterator, Mapping

log = logging.getLogger("aisp")

FIELDS = ("traceparent", "tracestate")
MAX_VALUE = 512
FLUSH_S = 0.5
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


def carried() -> dict[str, str]:
    """The trace that this code runs in, as variables for a job; empty without one. Malformed ones never get here."""
    from opentelemetry.propagate import inject

    carrier: dict[str, str] = {}
    inject(carrier)
    values = {name.upper(): carrier.get(name, "") for name in FIELDS}
    return {name: value for name, value in values.items() if 0 < len(value) <= MAX_VALUE}


def enabled(environ: Mapping[str, str] = os.environ) -> bool:
    """Return True if the user has named a collector and not switched tracing off."""
    off = environ.get("OTEL_SDK_DISABLED", "").lower() == "true" or environ.get("OTEL_TRACES_EXPORTER") == "none"
    return not off and any(environ.get(name) for name in _ENDPOINTS)


def start(service: str) -> None:
    """Export spans of this process under that name, if tracing is enabled. Logs a message if the extra is missing."""
    if not enabled():
        return
    try:
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        log.warning("a trace collector is named, but spans cannot be sent: pip install 'aisp-mcp[otel]'")
        return
    name = os.environ.get("OTEL_SERVICE_NAME") or service
    provider = TracerProvider(resource=Resource.create({"service.name": name}), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)


def stop() -> None:
    """Send the remaining spans, for at most half a second: an unresponsive collector must not delay the job."""
    if not enabled():
        return
    from opentelemetry import trace

    shutdown = getattr(trace.get_tracer_provider(), "shutdown", None)
    if shutdown is not None:
        thread = threading.Thread(target=shutdown, daemon=True)
        thread.start()
        thread.join(FLUSH_S)


@contextlib.contextmanager
def job_span(tool: str, job_id: str) -> Iterator[None]:
    """A span for a job, below that of the call that made it. It has no effect and no cost unless tracing is enabled."""
    if not enabled():
        yield
        return
    from opentelemetry import trace
    from opentelemetry.propagate import extract

    start("aisp-job")
    above = extract({name: os.environ.get(name.upper(), "") for name in FIELDS})
    tracer = trace.get_tracer("aisp")
    attributes = {"aisp.job.id": job_id, "gen_ai.tool.name": tool}
    try:
        with tracer.start_as_current_span(f"job {tool}", context=above, attributes=attributes):
            yield
    finally:
        stop()
