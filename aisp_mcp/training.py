"""The former name of `aisp_mcp.bench.training`, for benchmark files written before it moved."""

from aisp_mcp.bench.training import Quality, TrainingBenchmark, is_state, plain_step, train

__all__ = ["Quality", "TrainingBenchmark", "is_state", "plain_step", "train"]
