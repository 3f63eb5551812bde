"""Result files of other tools: read, kept apart from verdicts, compared with what their samples allow."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from result_files import FILES, TIMES, hyperfine, nvbench, vllm

from aisp_mcp.runs.imports import reading
from aisp_mcp.runs.imports.comparing import ratio_interval
from aisp_mcp.server.context import Context
from aisp_mcp.server.dispatch import execute


def call(tool: str, ctx: Context, **args: Any) -> dict[str, Any]:
    return execute(tool, args, ctx).model_dump(mode="json")


@pytest.mark.parametrize("name", FILES)
def test_each_format_is_read_with_its_values_and_samples(name: str, tmp_path: Path) -> None:
    expected = FILES[name]
    path = tmp_path / "results"
    path.write_text(expected.text)
    found = reading.read(str(path), None, 0.0)
    figure = next(figure for figure in found.contents.figures if figure.metric == expected.metric)
    assert found.format == expected.format
    assert figure.value == pytest.approx(expected.value)
    assert len(figure.samples) == expected.samples


def test_nvbench_samples_come_from_below_the_results_folder_alone(tmp_path: Path) -> None:
    folder = tmp_path / "results"
    folder.mkdir()
    (folder / "out.json").write_text(nvbench(folder))
    inside, outside = reading.read(str(folder / "out.json"), None, 0.0).contents.figures
    assert inside.samples == pytest.approx([0.001, 0.002, 0.003])
    assert inside.parameters == {"N": "nv-bin/0.bin", "device": "GPU A"}
    assert outside.samples == []


def test_what_a_file_says_against_itself_is_noted(tmp_path: Path) -> None:
    notes = {}
    for name in ("pytest-benchmark", "google-benchmark", "guidellm", "mlperf-training", "mlperf-inference"):
        (tmp_path / name).write_text(FILES[name].text)
        notes[name] = " ".join(reading.read(str(tmp_path / name), None, 0.0).contents.notes)
    assert "failed" in notes["pytest-benchmark"]
    assert "failed" in notes["google-benchmark"]
    assert "1 left out" in notes["guidellm"]
    assert "aborted" in notes["mlperf-training"]
    assert "INVALID" in notes["mlperf-inference"]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("root:x:0:0", "UNKNOWN_RESULTS"),
        ('{"results": []}', "UNKNOWN_RESULTS"),
        ("[" * 50_000, "UNKNOWN_RESULTS"),
        ('{"results": [{"command": "a", "mean": "NaN"}]}', "BAD_RESULTS"),
        ('{"benchmarks": [3], "devices": [4]}', "BAD_RESULTS"),
        ('{"results": {"a": {"result": 1e999}}, "commit_hash": 3}', "BAD_RESULTS"),
    ],
)
def test_other_files_are_refused_with_what_can_be_read(text: str, code: str, tmp_path: Path, ctx: Context) -> None:
    (tmp_path / "f").write_text(text)
    assert call("aisp_benchmark_import", ctx, file=str(tmp_path / "f"))["error"]["code"] == code


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "is empty: 0 bytes"),
        (b" \n", "only white space"),
        (b"PK\x03\x04rest", "a zip archive"),
        (gzip.compress(b"a.json".ljust(257, b"\0") + b"ustar".ljust(255, b"\0"), mtime=0), "a tar archive"),
        (b"\x1f\x8b\x08 damaged", "damaged gzip"),
    ],
)
def test_a_refusal_names_what_was_found(data: bytes, words: str, tmp_path: Path, ctx: Context) -> None:
    (tmp_path / "f").write_bytes(data)
    assert words in call("aisp_benchmark_import", ctx, file=str(tmp_path / "f"))["error"]["message"]


def test_values_of_asv_that_are_no_numbers_are_named(tmp_path: Path) -> None:
    values = [True, float("inf"), "fast", None, 2.5]
    rows = {f"suite.track_{at}": {"result": [value], "params": []} for at, value in enumerate(values)}
    (tmp_path / "f").write_text(json.dumps({"commit_hash": "abc", "results": rows}))
    contents = reading.read(str(tmp_path / "f"), None, 0.0).contents
    assert [figure.value for figure in contents.figures] == [2.5]
    assert [note.partition(":")[0] for note in contents.notes] == ["1 left out", "3 left out"]


def test_every_cut_of_every_format_is_read_or_refused(tmp_path: Path, ctx: Context) -> None:
    path = tmp_path / "cut"
    for expected in FILES.values():
        for share in (0.3, 0.6, 0.9, 0.99):
            path.write_text(expected.text[: int(share * len(expected.text))])
            envelope = call("aisp_benchmark_compare_imports", ctx, baseline=str(path), candidate=str(path))
            assert envelope["status"] == "ok" or envelope["error"]["code"] in ("BAD_RESULTS", "UNKNOWN_RESULTS")


def test_an_import_is_no_verdict_and_the_same_bytes_are_one_import(tmp_path: Path, ctx: Context) -> None:
    (tmp_path / "a.json").write_text(hyperfine(TIMES))
    first = call("aisp_benchmark_import", ctx, file=str(tmp_path / "a.json"), label="before")["result"]
    again = call("aisp_benchmark_import", ctx, file=str(tmp_path / "a.json"), label="renamed")["result"]
    assert first["id"] == again["id"]
    assert first["standing"] == "measured elsewhere, not judged by aisp"
    listed = call("aisp_benchmark_imports", ctx)["result"]["imports"]
    assert [row["label"] for row in listed] == ["renamed"]
    assert ctx.store.run_ids() == []


def test_an_owner_sees_only_own_imports(tmp_path: Path, ctx: Context) -> None:
    (tmp_path / "a.json").write_text(hyperfine(TIMES))
    call("aisp_benchmark_import", ctx.under("alice"), file=str(tmp_path / "a.json"))
    assert call("aisp_benchmark_imports", ctx.under("bob"))["result"]["imports"] == []
    assert len(call("aisp_benchmark_imports", ctx)["result"]["imports"]) == 1


def test_two_files_with_samples_are_compared_with_an_interval(tmp_path: Path, ctx: Context) -> None:
    (tmp_path / "a.json").write_text(hyperfine(TIMES))
    (tmp_path / "b.json").write_text(hyperfine([0.8 * time for time in TIMES]))
    call("aisp_benchmark_import", ctx, file=str(tmp_path / "a.json"), label="before")
    result = call("aisp_benchmark_compare_imports", ctx, baseline="before", candidate=str(tmp_path / "b.json"))[
        "result"
    ]
    row = result["differences"][0]
    assert row["finding"] == "better"
    assert row["interval"][0] <= 0.8 <= row["interval"][1] < 1
    assert "not a verdict" in result["cautions"][0]
    same = call("aisp_benchmark_compare_imports", ctx, baseline="before", candidate="before")["result"]
    assert same["differences"][0]["finding"] == "not resolved"


def test_higher_rates_are_better(tmp_path: Path, ctx: Context) -> None:
    row = {"model_type": "m", "n_prompt": 0, "n_gen": 8, "avg_ts": 1.0}
    for name, rate in (("a", 100.0), ("b", 80.0)):
        samples = [rate + i for i in range(6)]
        (tmp_path / name).write_text(json.dumps([{**row, "samples_ts": samples}]))
    files = {"baseline": str(tmp_path / "a"), "candidate": str(tmp_path / "b")}
    assert call("aisp_benchmark_compare_imports", ctx, **files)["result"]["differences"][0]["finding"] == "worse"


def test_without_samples_there_is_no_interval_but_how_to_get_one(tmp_path: Path, ctx: Context) -> None:
    (tmp_path / "a.json").write_text(vllm([0.1, 0.2, 0.3]))
    (tmp_path / "b.json").write_text(vllm([0.1, 0.2, 0.4], hw="h200"))
    files = {"baseline": str(tmp_path / "a.json"), "candidate": str(tmp_path / "b.json")}
    result = call("aisp_benchmark_compare_imports", ctx, **files)["result"]
    assert {row["finding"] for row in result["differences"]} <= {"no interval"}
    (tmp_path / "b.json").write_text(vllm([0.1, 0.2, 0.4]))
    result = call("aisp_benchmark_compare_imports", ctx, **files)["result"]
    assert "--save-detailed" in result["missing"][0]


def test_a_figure_has_a_history_in_the_order_of_measurement(tmp_path: Path, ctx: Context) -> None:
    for name, date in (("new", "20260302-000000"), ("old", "20260301-000000")):
        (tmp_path / name).write_text(vllm([0.1, 0.2], date=date))
        call("aisp_benchmark_import", ctx, file=str(tmp_path / name))
    history = call("aisp_benchmark_imports", ctx, name="TTFT")["result"]["history"]
    assert [point["label"] for point in history[0]["points"]] == ["old", "new"]
    assert history[0]["points"][0]["at"].startswith("2026-03-01")


def test_the_bootstrap_has_the_width_of_resampling() -> None:
    import random
    from statistics import median

    draw = random.Random(1)
    a, b = [draw.gauss(10, 1) for _ in range(30)], [draw.gauss(11, 1) for _ in range(40)]
    ratios = sorted(median(draw.choices(b, k=40)) / median(draw.choices(a, k=30)) for _ in range(4000))
    low, high = ratio_interval(a, b) or (0.0, 0.0)
    assert (low, high) == pytest.approx((ratios[100], ratios[-101]), abs=0.02)
    assert ratio_interval(a[:5], b) is None


def _google_debug(scale: float) -> str:
    document = json.loads(FILES["google-benchmark"].text)
    document["context"]["library_build_type"] = "debug"
    for row in document["benchmarks"]:
        row["real_time"] = scale * row.get("real_time", 0)
    return json.dumps(document)


def _coded(times: list[float], codes: Any) -> str:
    document = json.loads(hyperfine(times))
    document["results"][0]["exit_codes"] = codes
    return json.dumps(document)


TTFTS = [0.2 + 0.01 * i for i in range(20)]
FAST = [0.3 * time for time in TIMES]


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        (hyperfine(TIMES), _coded(FAST, [0] * 5 + [3] * 3), "3 of 8 runs ended with exit code 3"),
        (_coded(FAST, [None] * 8), hyperfine(TIMES), "no exit code (killed)"),
        (hyperfine(TIMES), _coded(FAST, None), "no exit codes"),
        (hyperfine(TIMES), hyperfine([*FAST[:7], 0.0]), "--shell=none"),
        (hyperfine([0.0] * 8), hyperfine(TIMES), "--shell=none"),
        (vllm(TTFTS), vllm(TTFTS[:15], num_prompts=20, failed=5), "5 of 20 requests failed"),
        (vllm(TTFTS), vllm([t / 3 for t in TTFTS], errors=["timeout"] * 4 + [""] * 16), "4 of 20 requests failed"),
        (FILES["google-benchmark"].text, _google_debug(0.2), "debug build"),
    ],
)
def test_what_measured_a_failure_is_neither_better_nor_worse(
    before: str, after: str, why: str, tmp_path: Path, ctx: Context
) -> None:
    (tmp_path / "a").write_text(before)
    (tmp_path / "b").write_text(after)
    files = {"baseline": str(tmp_path / "a"), "candidate": str(tmp_path / "b")}
    result = call("aisp_benchmark_compare_imports", ctx, **files)["result"]
    assert not {row["finding"] for row in result["differences"]} & {"better", "worse", "different"}
    assert why in str([row["why"] for row in result["differences"]])
    assert result["notes"]
    assert "nan" not in result["sentence"]


def test_one_failed_request_of_many_is_a_note(tmp_path: Path, ctx: Context) -> None:
    many = [0.2 + 0.001 * i for i in range(200)]
    (tmp_path / "a").write_text(vllm(many))
    (tmp_path / "b").write_text(vllm([time / 2 for time in many[:199]], num_prompts=200, failed=1))
    files = {"baseline": str(tmp_path / "a"), "candidate": str(tmp_path / "b")}
    result = call("aisp_benchmark_compare_imports", ctx, **files)["result"]
    assert "better" in {row["finding"] for row in result["differences"]}
    assert "1 of 200" in result["notes"][0]
