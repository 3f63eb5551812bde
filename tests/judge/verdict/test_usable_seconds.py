"""What a verdict makes of measured seconds on a GPU: copies left out, rounds on a busy device without a gain."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from aisp_mcp.judge.evidence import Account, DeviceEvidence, Overhead, Replicate, Round, RoundTiming
from aisp_mcp.judge.options import ALL
from aisp_mcp.judge.pair import Pair
from aisp_mcp.judge.presets import PRESETS
from aisp_mcp.judge.protocol.roles import BASELINES, Role
from aisp_mcp.judge.verdict import replay
from aisp_mcp.judge.verdict.conclude import Terms, conclude
from aisp_mcp.judge.verdict.estimate import MAX_DISCARDED, with_usable_seconds

CALL, COPY = 100e-6, 30e-6
MEASURED = {Role.BASELINE: CALL, Role.BASELINE_REPEAT: 1.1 * CALL, Role.CANDIDATE: CALL / 2}
WITH_HOST = {role: 2 * seconds for role, seconds in MEASURED.items()}
ISOLATED = {role: seconds + 290e-6 for role, seconds in MEASURED.items()}


def test_seconds_without_copies_on_an_idle_device_are_used_as_measured() -> None:
    device = DeviceEvidence(MEASURED, WITH_HOST, isolated=ISOLATED, discarded_rounds=MAX_DISCARDED)
    assert with_usable_seconds(device) == replace(device, discarded_rounds=0)
    assert with_usable_seconds(DeviceEvidence()) == DeviceEvidence()
    assert with_usable_seconds(DeviceEvidence(discarded_rounds=MAX_DISCARDED + 1)) == DeviceEvidence()  # on a CPU


def test_copies_of_a_baseline_are_left_out_of_all_its_calls() -> None:
    device = DeviceEvidence(
        MEASURED,
        WITH_HOST,
        isolated=ISOLATED,
        isolated_with_host=ISOLATED,
        copies_s=dict.fromkeys(BASELINES, COPY),
        copies_with_host_s=dict.fromkeys(BASELINES, 2 * COPY),
    )
    usable = with_usable_seconds(device)
    for role in BASELINES:
        assert usable.device_only[role] == MEASURED[role] - COPY
        assert usable.isolated[role] == ISOLATED[role] - COPY
        assert usable.with_host[role] == WITH_HOST[role] - 2 * COPY
        assert usable.isolated_with_host[role] == ISOLATED[role] - 2 * COPY
    assert usable.device_only[Role.CANDIDATE] == MEASURED[Role.CANDIDATE]
    assert usable.isolated[Role.CANDIDATE] == ISOLATED[Role.CANDIDATE]
    assert device.device_only == MEASURED  # which stay as they were measured
    assert with_usable_seconds(usable) == usable
    without = with_usable_seconds(replace(device, isolated={}))
    assert without.isolated == {}


@pytest.mark.parametrize(("copy_s", "left"), [(CALL / 8, CALL / 2 - CALL / 8), (CALL, CALL / 4)])
def test_copies_of_a_candidate_are_at_most_half_of_its_call(copy_s: float, left: float) -> None:
    """It may leave them out, and isolated calls contain none."""
    usable = with_usable_seconds(DeviceEvidence(MEASURED, isolated=ISOLATED, copies_s={Role.CANDIDATE: copy_s}))
    assert usable.device_only[Role.CANDIDATE] == pytest.approx(left)
    assert usable.isolated == ISOLATED
    assert [usable.device_only[role] for role in BASELINES] == [MEASURED[role] for role in BASELINES]


def test_rounds_on_a_device_that_was_rarely_idle_prove_no_gain() -> None:
    copies = dict.fromkeys(BASELINES, COPY)
    device = DeviceEvidence(MEASURED, WITH_HOST, copies_s=copies, discarded_rounds=MAX_DISCARDED + 1)
    usable = with_usable_seconds(device)
    assert usable.device_only[Role.CANDIDATE] == math.sqrt((CALL - COPY) * (1.1 * CALL - COPY))
    assert usable.with_host == {}


def on_a_gpu(index: int, device: DeviceEvidence) -> Replicate:
    """A replicate whose worker's clock shows the candidate at about half of the baseline's time."""
    replicate = Replicate(index, device=device, overhead=Overhead(0.0, 0.0))
    for role in (*Role, *reversed(Role)):
        scattered = CALL * (1 + 1e-4 * index * (role is not Role.BASELINE))
        timing = RoundTiming(1, scattered, [round(1e9 * scattered / (2 if role is Role.CANDIDATE else 1))], Account())
        replicate.rounds.append(Round(role, scattered, replay.median_s(timing), timing))
    return replicate


def logged(replicates: list[Replicate], terms: Terms, opened: dict[str, Any]) -> list[dict[str, Any]]:
    """The records of these replicates, as they are read from a log."""
    records: list[dict[str, Any]] = [{"kind": "open", "opened": opened}]
    for replicate in replicates:
        for row in replicate.rounds:
            timing = {**asdict(row.timing), "account": asdict(row.timing.account)}
            del timing["apart_ns"]  # of several ranks
            records.append({"kind": "round", "replicate": replicate.index, "side": row.role, **timing})
    records += [{"kind": kind, **fields} for kind, fields in replay.records(terms, replicates, [], {})]
    records.append({"kind": "verdict", "disclosed": {}, "seconds": 0.0})
    return list(json.loads(json.dumps(records)))


@pytest.mark.parametrize("before", [False, True], ids=["seconds as measured", "a log that has usable seconds"])
@pytest.mark.parametrize(("discarded", "verdict"), [(0, "faster"), (MAX_DISCARDED + 1, "same")])
def test_a_log_leads_to_the_same_verdict_again(before: bool, discarded: int, verdict: str) -> None:
    """Logs from before the measured seconds were kept have the usable ones, and none of the fields that lead there."""
    devices = []
    for index in range(5):
        scale = 1 + 1e-3 * index
        seconds = {
            Role.BASELINE: (CALL + COPY) * scale,
            Role.BASELINE_REPEAT: (CALL + COPY) * scale * (1 + 1e-4 * (index - 2)),
            Role.CANDIDATE: CALL / 2 * scale,
        }
        isolated = {role: value + 290e-6 for role, value in seconds.items()}
        devices.append(
            DeviceEvidence(
                seconds,
                isolated=isolated,
                gated=True,
                copies_s=dict.fromkeys(BASELINES, COPY),
                discarded_rounds=discarded,
            )
        )
    opened: Any = {"goal": "speed", "error_ratio": 1.0, "oracle": "float64", "facts": {}, "unit": ""}
    opened["work"] = {"flops": 0.0, "bytes": 0.0, "items": 0.0}
    terms = Terms(Pair("t", Path(), "c", Path()), PRESETS["default"], ALL, opened, "L1", 1, None, {})
    concluded = conclude(terms, [on_a_gpu(index, device) for index, device in enumerate(devices)], [])
    if before:
        devices = list(map(with_usable_seconds, devices))
    records = logged([on_a_gpu(index, device) for index, device in enumerate(devices)], terms, opened)
    if before:
        for record in records:
            for name in ("copies_s", "copies_with_host_s", "discarded_rounds"):
                record.get("device", {}).pop(name, None)
    again = replay.replay(records)
    assert again.verdict.value == concluded.verdict.value == verdict
    assert again.ratio == concluded.ratio
    assert again.sentence == concluded.sentence
