"""From a call to a plan, with servers that answer, and from figures to an answer."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

from aisp_mcp.errors import Unavailable, UsageError
from aisp_mcp.runs.endpoint import clients, loads, recorded
from aisp_mcp.runs.endpoint import servers as asked
from aisp_mcp.runs.endpoint.loads import Load
from aisp_mcp.runs.endpoint.measuring import AGAIN, BASELINE, CANDIDATE, Plan, Runs, figures
from aisp_mcp.runs.endpoint.recorded import Recorded
from aisp_mcp.runs.endpoint.records import ServerFigures, ServerVerdict
from aisp_mcp.runs.endpoint.servers import Server
from aisp_mcp.server.context import Context

DEFINITIONS = (
    "ttft: request sent to first token. tpot: (latency - ttft) / (output tokens - 1). latency: request sent to last"
    " token. throughput: output tokens per second of a repeat. goodput: requests within the SLO per second of a repeat."
    " Medians over a repeat's requests; intervals by t over repeats, each a fresh client process."
)


def prepared(call: dict[str, Any], ctx: Context, timeout_s: float) -> tuple[Plan, list[Server]]:
    """The plan of a call, and the servers, after one request to each. Raises Unavailable, UsageError, NotFound."""
    client, program = clients.find(None if call["client"] == "auto" else call["client"])
    names = {call["url"]: call["model"]}
    addresses = [asked.address(call["url"])]
    models = [asked.model(addresses[0], names[call["url"]])]
    if call["candidate"]:
        addresses.append(asked.address(call["candidate"]))
        models.append(asked.model(addresses[1], call["candidate_model"] or call["model"]))
    servers = [Server(*pair) for pair in zip(addresses, models, strict=True)]
    asked.require_two(servers)
    if call["goal"] == "goodput" and not (call["slo_ttft_ms"] or call["slo_tpot_ms"]):
        raise UsageError("NO_SLO", "Goodput needs a service level.", "Give slo_ttft_ms, slo_tpot_ms or both.")
    for each_server in servers:
        asked.require_answer(each_server.url, each_server.model, call["output_tokens"])
    prompts, trace = recorded.read_file(call["prompts"], call["requests"]) if call["prompts"] else ([], [])
    under = (
        loads.parse(call["loads"])
        if call["loads"]
        else loads.default(call["concurrency"], len(servers) > 1, bool(trace))
    )
    _require_arrivals(under, trace, client.name)
    plan = Plan(
        client=client,
        program=program,
        loads=tuple(under),
        **{key: call[key] for key in ("requests", "output_tokens", "prompt_words", "repeats")},
        slo_s=(_seconds(call["slo_ttft_ms"]), _seconds(call["slo_tpot_ms"])),
        folder=(ctx.run_dir or ctx.settings.home / "serving" / secrets.token_hex(8)).absolute(),
        timeout_s=call["timeout_s"] or timeout_s,
        prompts=tuple(prompts),
        trace=tuple(trace),
    )
    return plan, servers


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


def _require_arrivals(under: Sequence[Load], trace: Sequence[Recorded], client: str) -> None:
    """A load of recorded arrivals needs a trace, and a client that sends at given times."""
    if not any(load.recorded for load in under):
        return
    if not trace:
        message = "The load trace needs the recorded requests."
        raise UsageError("BAD_LOAD", message, f"Give them as --prompts FILE. {recorded.HINT}")
    if client != "aiperf":
        message = f"{client} cannot send requests at the times of a trace."
        raise Unavailable("NOT_INSTALLED", message, "pip install aiperf, or name other loads: --loads 4 --loads 2/s.")


def all_figures(plan: Plan, servers: list[Server], measured: list[Runs]) -> list[ServerFigures]:
    """Figures of each server under each load; the baseline's include its second runs."""
    rows = []
    for runs in measured:
        before = runs.by_role[BASELINE] + runs.by_role.get(AGAIN, [])
        repeats = [before, *([runs.by_role[CANDIDATE]] if CANDIDATE in runs.by_role else [])]
        rows += [figures(plan, server, runs.load, each) for server, each in zip(servers, repeats, strict=True)]
    return rows


def sentence(shown: list[ServerFigures], pair: ServerVerdict | None) -> str:
    if pair is not None:
        return f"{shown[1].url} against {shown[0].url}: {pair.sentence}"
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


def notes(shown: list[ServerFigures], plan: Plan, measured: Sequence[Runs]) -> list[str]:
    failing = [server for server in shown if server.failed]
    messages = [f"{each.failed} requests to {each.url} did not succeed at {each.load}." for each in failing]
    if (repeats := measured[0].repeats) < plan.repeats:
        messages.append(f"{repeats} of {plan.repeats} repeats: the next would have ended after the time limit.")
    if repeats < 2:
        messages.append("One repeat has no interval.")
    if len(shown) in (2, 4) and shown[0].url != shown[1].url:
        messages.append("Fewer than three loads: a loss under another load would not be seen.")
    if plan.trace:
        share = f"{recorded.shared(plan.trace):.0%}".replace("%", " %")
        known = any(row.blocks for row in plan.trace)
        shared = f"{share} of their blocks were in an earlier one" if known else "what they share was not recorded"
        messages.append(f"{len(plan.trace)} recorded requests; {shared}.")
    if plan.prompts:
        messages.append("The same prompts are sent in every run: a prefix cache answers later runs faster.")
    return messages
