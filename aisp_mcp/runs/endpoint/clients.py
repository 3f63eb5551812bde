"""Load clients: how to call each, and where it writes its requests. Only installed programs are used."""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from aisp_mcp.errors import ProcessError, Unavailable
from aisp_mcp.process import run as process
from aisp_mcp.runs.endpoint.loads import Load
from aisp_mcp.runs.endpoint.recorded import Recorded
from aisp_mcp.runs.imports.readers import aiperf, guidellm, serving
from aisp_mcp.runs.imports.readers.requests import Request
from aisp_mcp.runs.imports.readers.source import Source

ClientName = Literal["guidellm", "aiperf", "vllm"]
_WORDS = [
    "measure",
    "kernel",
    "latency",
    "token",
    "cache",
    "memory",
    "batch",
    "stream",
    "queue",
    "layer",
    "tensor",
    "request",
    "server",
    "model",
]
_STREAMS_PER_PROCESS = 32  # of GuideLLM
# Servers report token counts; clients that require a tokenizer get one with a single token.
_TOKENIZER = {
    "version": "1.0", "truncation": None, "padding": None, "normalizer": None, "post_processor": None, "decoder": None,
    "pre_tokenizer": {"type": "Whitespace"},
    "model": {"type": "WordLevel", "vocab": {"<unk>": 0}, "unk_token": "<unk>"},
    "added_tokens": [{"id": 0, "content": "<unk>", "single_word": False, "lstrip": False, "rstrip": False,
                      "normalized": False, "special": True}],
}  # fmt: skip
_TOKENIZER_CONFIG = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "<unk>", "model_max_length": 1_000_000}


@dataclass(frozen=True)
class Job:
    """One run of a client. prompts: one per request, never sent before, so that no prefix cache contains them.
    load: requests at once or arrivals per second; never a share. seed: of the arrivals. recorded: of each
    prompt, if the load is that of a trace.
    """

    url: str
    model: str
    load: Load
    output_tokens: int
    prompts: list[str]
    folder: Path
    timeout_s: float
    seed: int = 0
    recorded: tuple[Recorded, ...] = ()


@dataclass(frozen=True)
class Client:
    """argv: the command for a job. environment: variables for a run under a load, beyond those of this process.
    results: the file with single requests, below the job's folder.
    """

    name: ClientName
    argv: Callable[[Job], list[str]]
    results: str
    read: Callable[[Source], list[Request]]
    environment: Callable[[Load], dict[str, str]]


def prompts(count: int, words: int, seed: int) -> list[str]:
    """Distinct prompts of that many words, different for every seed."""
    draw = random.Random(seed)
    return [" ".join(draw.choice(_WORDS) + str(draw.randrange(1000)) for _ in range(words)) for _ in range(count)]


def find(name: ClientName | None) -> tuple[Client, str]:
    """The named client, or the first installed one, and its program. Raises Unavailable NOT_INSTALLED."""
    for client in CLIENTS:
        if name in (None, client.name) and (program := _program(client.name)):
            return client, program
    names = name or ", ".join(client.name for client in CLIENTS)
    raise Unavailable(
        "NOT_INSTALLED",
        f"No load client was found on the PATH or next to {Path(sys.executable).name}: {names}.",
        f"pip install {name or 'guidellm'}, in a separate environment whose bin folder is on the PATH.",
    )


def _program(name: str) -> str | None:
    neighbour = Path(sys.executable).parent / name
    return shutil.which(name) or (str(neighbour) if os.access(neighbour, os.X_OK) else None)


def run(client: Client, program: str, job: Job) -> list[Request]:
    """Send the job's requests and return the answered ones. Raises ProcessError CLIENT_FAILED or TIMEOUT."""
    job.folder.mkdir(parents=True, exist_ok=True)
    _write_inputs(client, job)
    env = {**os.environ, **client.environment(job.load)}
    done = process.run([program, *client.argv(job)], timeout_s=job.timeout_s, env=env, cwd=job.folder)
    (job.folder / "client.log").write_text(f"{done.stdout}\n{done.stderr}")
    path = job.folder / client.results
    if done.timed_out:
        raise ProcessError(
            "TIMEOUT", f"{client.name} did not finish within {job.timeout_s:g} s.", "Send fewer requests."
        )
    if not path.is_file():
        tail = (done.stderr.strip() or done.stdout.strip())[-400:]
        message = f"{client.name} ended with {done.returncode} and wrote no requests: {tail}"
        raise ProcessError("CLIENT_FAILED", message, f"Its output is in {job.folder / 'client.log'}.")
    return client.read(Source(path, path.read_text("utf-8", "replace")))


def _write_inputs(client: Client, job: Job) -> None:
    key = "text" if client.name == "aiperf" else "prompt"
    more = {"output_tokens": job.output_tokens} if client.name == "vllm" else {}
    lines = [json.dumps({key: prompt, **more}) for prompt in job.prompts]
    if job.load.recorded:
        rows = zip(job.prompts, job.recorded, strict=True)
        lines = [
            json.dumps({"timestamp": 1000 * row.at_s, "text_input": prompt, "output_length": row.output_tokens})
            for prompt, row in rows
        ]
    (job.folder / "prompts.jsonl").write_text("\n".join(lines) + "\n")
    tokenizer = job.folder / "tokenizer"
    tokenizer.mkdir(exist_ok=True)
    (tokenizer / "tokenizer.json").write_text(json.dumps(_TOKENIZER))
    (tokenizer / "tokenizer_config.json").write_text(json.dumps(_TOKENIZER_CONFIG))


def _guidellm(job: Job) -> list[str]:
    backend = f"kind=openai_http,target={job.url},model={job.model},max_tokens={job.output_tokens}"
    streams, rate = job.load.streams, job.load.rate
    profile = f"kind=poisson,rate={rate:g}" if streams is None else f"kind=concurrent,streams={streams}"
    return [
        "run", "--disable-console", "--backend", backend,
        "--profile", profile, "--seed", f"kind=static,value={job.seed}",
        "--constraint", f"kind=max_requests,count={len(job.prompts)}",
        "--data", f"kind=json_file,path={job.folder / 'prompts.jsonl'}",
        "--output", f"kind=json,path={job.folder / 'guidellm.json'}",
    ]  # fmt: skip


def _aiperf(job: Job) -> list[str]:
    streams, rate = job.load.streams, job.load.rate
    if job.load.recorded:
        load = ["--fixed-schedule", "--custom-dataset-type", "mooncake_trace"]
    else:
        load = ["--request-rate", f"{rate:g}"] if streams is None else ["--concurrency", str(streams)]
        load += ["--request-count", str(len(job.prompts)), "--custom-dataset-type", "single_turn",
                 "--extra-inputs", f"max_tokens:{job.output_tokens}"]  # fmt: skip
    return [
        "profile", "-m", job.model, "--url", job.url, "--endpoint-type", "chat", "--streaming",
        *load, "--random-seed", str(job.seed), "--input-file", str(job.folder / "prompts.jsonl"),
        "--use-server-token-count",
        "--tokenizer", str(job.folder / "tokenizer"), "--ui", "none", "--artifact-dir", str(job.folder / "aiperf"),
    ]  # fmt: skip


def _vllm(job: Job) -> list[str]:
    streams, rate = job.load.streams, job.load.rate
    load = ["--request-rate", f"{rate:g}"] if streams is None else ["--max-concurrency", str(streams)]
    return [
        "bench", "serve", "--backend", "openai-chat", "--base-url", job.url, "--endpoint", "/v1/chat/completions",
        "--model", job.model, "--tokenizer", str(job.folder / "tokenizer"), "--dataset-name", "custom",
        "--dataset-path", str(job.folder / "prompts.jsonl"), "--skip-chat-template", "--disable-shuffle",
        "--custom-output-len", str(job.output_tokens), "--num-prompts", str(len(job.prompts)),
        *load, "--seed", str(job.seed), "--disable-tqdm",
        "--save-result", "--save-detailed", "--result-dir", str(job.folder), "--result-filename", "vllm.json",
    ]  # fmt: skip


def _guidellm_requests(source: Source) -> list[Request]:
    return [request for row in source.get("benchmarks") or [] for request in guidellm.requests(row)]


def _vllm_requests(source: Source) -> list[Request]:
    return [request for row in source.objects for request in serving.requests(row)]


def _offline(_: Load) -> dict[str, str]:
    return {"HF_HUB_OFFLINE": "1"}  # or a client would look for a model's tokenizer on the network


def _few_processes(load: Load) -> dict[str, str]:
    """By default GuideLLM 0.8.1 starts ten processes, which takes most of a short run's time and delays first tokens
    on few cores. With arrivals at a rate there is one, since each of several draws the same gaps from the seed.
    """
    processes = 1 if load.streams is None else -(-load.streams // _STREAMS_PER_PROCESS)
    return {**_offline(load), "GUIDELLM__MAX_WORKER_PROCESSES": str(min(10, processes))}


# Ordered by start-up time.
CLIENTS: tuple[Client, ...] = (
    Client("aiperf", _aiperf, "aiperf/profile_export.jsonl", aiperf.requests, lambda _: {}),
    Client("guidellm", _guidellm, "guidellm.json", _guidellm_requests, _few_processes),
    Client("vllm", _vllm, "vllm.json", _vllm_requests, _offline),
)
