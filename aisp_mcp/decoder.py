"""The former name of `aisp_mcp.bench.decoder`, for benchmark files written before it moved."""

from aisp_mcp.bench.decoder import (
    Decoder,
    DecoderBenchmark,
    Running,
    SlotCache,
    admit,
    decode,
    first_come,
    gated,
    serve_continuously,
    serve_in_batches,
)

__all__ = [
    "Decoder",
    "DecoderBenchmark",
    "Running",
    "SlotCache",
    "admit",
    "decode",
    "first_come",
    "gated",
    "serve_continuously",
    "serve_in_batches",
]
