"""From a call to a plan, with servers that answer, and from figures to an answer."""

from __future__ import annotations

import json
import secrets
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from aisp_mcp.errors import NotFound, Unavailable, UsageError
from aisp_mcp.runs.endpoint import clients
from aisp_mcp.runs.endpoint.measuring import AGAIN, BASELINE, CANDIDATE, Plan, Runs, Server, figures
from aisp_mcp.runs.endpoint.records import ServerFigures, ServerVerdict
from aisp_mcp.server.context import Context

DEFINITIONS = (
    "ttft: request sent to first token. tpot: (latency - ttft) / (output tokens - 1). latency: request sent to last"
    " token. goodput: requests within the SLO per second of a repeat. Medians over a repeat's requests; intervals by t"
    " over repeats, each a fresh client process."
)


def prepared(call: dict[str, Any], ctx: Context, timeout_s: float) -> tuple[Plan, list[Server]]:
    """The plan of a call, and the servers, after one request to each. Raises Unavailable, UsageError, NotFound."""
    client, program = clients.find(None if call["client"] == "auto" else call["client"])
    names = {call["url"]: call["model"]}
    addresses = [address(call["url"])]
    models = [model(addresses[0], names[call["url"]])]
    if call["candidate"]:
        addresses.append(address(call["candidate"]))
        models.append(model(addresses[1], call["candidate_model"] or call["model"]))
    servers = [Server(*pair) for pair in zip(addresses, models, strict=True)]
    for each_server in servers:
        require_answer(each_server.url, each_server.model, call["output_tokens"])
    plan = Plan(
        client=client,
        program=program,
        **{key: call[key] for key in ("concurrency", "requests", "output_tokens", "prompt_words", "repeats")},
        slo_s=(_seconds(call["slo_ttft_ms"]), _seconds(call["slo_tpot_ms"])),
        folder=(ctx.run_dir or ctx.settings.home / "serving" / secrets.token_hex(8)).absolute(),
        timeout_s=call["timeout_s"] or timeout_s,
        prompts=tuple(_file_prompts(call["prompts"])) if call["prompts"] else (),
    )
    return plan, servers


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


def _file_prompts(path: str) -> list[str]:
    """Prompts of a file: JSON objects with prompt or text, or plain lines. Raises NotFound, UsageError."""
    try:
        lines = Path(path).expanduser().read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise NotFound("NO_SUCH_FILE", f"Cannot read prompts from {path[:200]!r}.", "One prompt a line.") from error
    prompts = [_prompt(line) for line in lines if line.strip()]
    if not prompts:
        raise UsageError("NO_PROMPTS", f"{path[:200]!r} contains no prompt.", "One prompt a line.")
    return prompts


def _prompt(line: str) -> str:
    try:
        row = json.loads(line)
    except ValueError:
        return line
    return str(row.get("prompt") or row.get("text") or line) if isinstance(row, dict) else line


def all_figures(plan: Plan, servers: list[Server], runs: Runs) -> list[ServerFigures]:
    """Figures of each server; the baseline's include its second runs."""
    before = runs.by_role[BASELINE] + runs.by_role.get(AGAIN, [])
    repeats = [before, *([runs.by_role[CANDIDATE]] if CANDIDATE in runs.by_role else [])]
    return [figures(plan, server, runs) for server, runs in zip(servers, repeats, strict=True)]


def sentence(shown: list[ServerFigures], pair: ServerVerdict | None, goal: str) -> str:
    """The answer in one sentence."""
    if pair is not None:
        return f"{shown[1].url} against {shown[0].url}, {goal}: {pair.sentence}"
    values = {metric.name: metric for metric in shown[0].metrics}
    words = [
        f"{name} {_stated(values[name].value, values[name].interval)}" for name in ("ttft", "tpot") if name in values
    ]
    if "goodput" in values:
        words.append(f"goodput {values['goodput'].value:.3g} requests/s within the SLO")
    return f"{shown[0].model} at {shown[0].url}: {', '.join(words)}."


def _stated(value: float, interval: list[float]) -> str:
    bounds = f" [{1000 * interval[0]:.3g}, {1000 * interval[1]:.3g}]" if interval else ""
    return f"{1000 * value:.3g}{bounds} ms"


def notes(shown: list[ServerFigures], plan: Plan) -> list[str]:
    """Limits of these figures."""
    messages = [f"{server.failed} requests to {server.url} did not succeed." for server in shown if server.failed]
    if plan.repeats < 2:
        messages.append("One repeat has no interval.")
    if plan.prompts:
        messages.append("The same prompts are sent in every run: a prefix cache answers later runs faster.")
    return messages


_TIMEOUT_S = 60.0
_MOST = 2**20


def address(url: str) -> str:
    """The URL without /v1 and a trailing slash. Raises UsageError BAD_URL."""
    parts = urlsplit(url if "://" in url else f"http://{url}")
    if parts.scheme not in ("http", "https") or not parts.hostname or "," in url:
        raise UsageError("BAD_URL", f"{url[:200]!r} is not an HTTP address.", "Such as http://127.0.0.1:8000.")
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/').removesuffix('/v1')}"


def model(url: str, name: str | None) -> str:
    """The named model, or the only one listed. Raises Unavailable UNREACHABLE, UsageError WHICH_MODEL."""
    try:
        listed = [str(row.get("id")) for row in _ask(f"{url}/v1/models").get("data", []) if isinstance(row, dict)]
    except Unavailable:
        if name is None:
            raise
        return name  # some servers cannot list; the next request shows whether the model exists
    if name is not None:
        return name
    if len(listed) != 1:
        known = ", ".join(listed[:10]) or "none"
        raise UsageError("WHICH_MODEL", f"{url} serves these models: {known}.", "Name one of them as model.")
    return listed[0]


def require_answer(url: str, name: str, tokens: int) -> None:
    """Send one untimed request: it warms the server up and shows that it answers. Raises Unavailable UNREACHABLE."""
    message = {"role": "user", "content": "Count from one to ten."}
    body = {"model": name, "messages": [message], "max_tokens": tokens}
    if not _ask(f"{url}/v1/chat/completions", body).get("choices"):
        raise Unavailable("UNREACHABLE", f"{url} answered a chat request without a choice.", "See the server's log.")


def _ask(url: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as reply:
            document = json.loads(reply.read(_MOST))
    except urllib.error.HTTPError as error:
        raise Unavailable("UNREACHABLE", f"{url} answered {error.code} {error.reason}.", _HINT) from error
    except (OSError, ValueError) as error:
        raise Unavailable("UNREACHABLE", f"{url} did not answer: {error}.", _HINT) from error
    return document if isinstance(document, dict) else {}


_HINT = "It must be an OpenAI-compatible server that is running and needs no key, such as vllm serve."
