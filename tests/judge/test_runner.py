"""The judge from outside: whole comparisons with real processes, honest, wrong, broken and hostile candidates."""

from __future__ import annotations

import json
import os
import platform
import textwrap
from collections import Counter
from itertools import count, pairwise
from pathlib import Path

import psutil
import pytest
from harness_support import HONEST, LEAST, PRODUCT, judge, write_pair

from aisp_mcp.errors import BenchmarkError
from aisp_mcp.judge.audit_log import check_chain
from aisp_mcp.judge.comparison import compare
from aisp_mcp.judge.options import Options
from aisp_mcp.judge.parent.processes.placement import measuring_cpus
from aisp_mcp.judge.presets import Preset
from aisp_mcp.judge.protocol.roles import BASELINES, Role
from aisp_mcp.judge.records import Skip
from aisp_mcp.judge.records.verdict import Comparison
from aisp_mcp.process import tree

pytestmark = [pytest.mark.torch]


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    """An honest candidate that floods its output when it is loaded, judged with a margin of the user's own. It and the
    reference, which the verifier alone computes, look where they run.
    """
    folder, measured = tmp_path_factory.mktemp("honest"), set(measuring_cpus())
    rest = os.sched_getaffinity(0) - measured or measured
    aside = f"""
        def reference(self, a, b):
            import os
            assert os.sched_getaffinity(0) == {rest}
            return a @ b
    """
    candidate = f"""
        import os
        for _ in range(800):
            os.write(1, b"x" * 65536)
        def run(a, b):
            assert os.sched_getaffinity(0) == {measured}
            return a @ b
    """
    pair = write_pair(folder, candidate, textwrap.dedent(PRODUCT) + textwrap.indent(textwrap.dedent(aside), "    "))
    comparison = compare(
        pair, Options(Preset("places", 1, 0.001, 6, isolated_rounds=1), "small", "cpu", folder, margin=100.0)
    )
    assert isinstance(comparison, Comparison)
    return comparison


def test_an_honest_candidate_leaves_its_evidence(honest: Comparison) -> None:
    comparison = honest
    assert (comparison.margin, comparison.verdict.value in ("same", "inconclusive")) == (100.0, True)
    assert comparison.verification is not None
    assert comparison.verification.checked > 0
    assert comparison.verification.failure is None
    assert comparison.verification.max_error_ratio == pytest.approx(1.0)
    assert comparison.clocks is not None
    assert comparison.ratio is not None
    assert comparison.baseline is not None
    assert comparison.baseline.processes == 2
    assert comparison.baseline.flops_per_s == pytest.approx(2 * 128**3 / comparison.baseline.time_s)
    assert "strides" not in comparison.sentence + "".join(flag.code for flag in comparison.flags)
    assert comparison.log_path is not None
    assert check_chain(Path(comparison.log_path)) == comparison.log_sha256


def test_work_that_is_left_out_shows_as_speed_that_is_real(tmp_path: Path) -> None:
    """Half the product is much less work; with the whole output right, the gain would be real. Here it is wrong."""
    comparison = judge(tmp_path, "def run(a, b):\n    out = a @ b\n    out[-1] = 0\n    return out\n")
    assert comparison.verdict == "incorrect"
    assert comparison.ratio is None
    assert [flag.code for flag in comparison.flags] == ["incorrect_output"]


def test_a_planned_look_ends_a_run_that_is_decided(tmp_path: Path) -> None:
    """Both sides sleep: twelve times as long is a difference that no load hides."""
    sleeping = PRODUCT.replace("return a @ b", "time.sleep(0.005)\n            return a @ b")
    sleeping = sleeping.replace("from aisp", "import time\n    from aisp", 1)
    slow = "import time\ndef run(a, b):\n    time.sleep(0.06)\n    return a @ b\n"
    comparison = judge(tmp_path, slow, sleeping, Preset("looks", 4, 0.004, 1, looks=(3, 4), isolated_rounds=1))
    assert (comparison.verdict, comparison.replicates) == ("slower", 3)
    assert comparison.interval is not None
    assert comparison.interval.level > 0.95  # what an early look costs


@pytest.mark.parametrize(
    ("candidate", "verdict", "code", "words"),
    [
        (
            "def run(a, b):\n    raise ValueError('boom')\n",
            "incorrect",
            "incorrect_raised",
            "candidate raised: ValueError: boom",
        ),
        ("import os\ndef run(a, b):\n    os._exit(0)\n", "invalid", "candidate_crashed", "exit code 0"),
        ("import ctypes\ndef run(a, b):\n    ctypes.string_at(0)\n", "invalid", "candidate_crashed", "SIGSEGV"),
        (
            "def run(a, b):\n    return (a @ b).half()\n",
            "incorrect",
            "incorrect_raised",
            "candidate does not fit the contract: out is ('float16'",
        ),
        ("def run(a, b):\n    return a * 0 + 1\n", "incorrect", "incorrect_output", "error"),
        (
            "def run(a, b):\n    out = a @ b\n    a.zero_()\n    return out\n",
            "invalid",
            "input_mutated",
            "'a' was changed",
        ),
    ],
    ids=["raises", "exits 0", "segfault", "dtype", "wrong", "mutates its input"],
)
def test_a_broken_candidate_ends_with_evidence(
    tmp_path: Path, candidate: str, verdict: str, code: str, words: str
) -> None:
    comparison = judge(tmp_path, candidate)
    assert (comparison.verdict, [flag.code for flag in comparison.flags if flag.severity == "fatal"]) == (
        verdict,
        [code],
    )
    assert words in comparison.sentence


@pytest.mark.skipif(platform.machine() not in ("x86_64", "aarch64"), reason="no filter of system calls")
def test_keyrings_that_outlive_a_process_are_out_of_reach(tmp_path: Path) -> None:
    """A login's session keyring is inherited by every process; a cold start could find a table there."""
    number = {"x86_64": 248, "aarch64": 217}[platform.machine()]
    adding = f"kernel.syscall({number}, b'user', b'table', b'1', 1, ctypes.c_long(-3))"
    candidate = f"""
        import ctypes, os
        kernel = ctypes.CDLL(None, use_errno=True)
        def run(a, b):
            raise OSError(f"{{{adding}}} {{os.strerror(ctypes.get_errno())}}")
    """
    assert "-1 Function not implemented" in judge(tmp_path, candidate).sentence


@pytest.mark.parametrize(
    "text",
    [
        "CUDA error: no kernel image is available for execution on the device",
        "Error building extension 'k': ptxas k.ptx, line 5; error   : Instruction 'tcgen05.fence' not supported on"
        " .target 'sm_90'; the compiler's output: FAILED",
        "nvcc fatal   : Unsupported gpu architecture 'sm_190'",
    ],
    ids=["driver", "ptxas", "nvcc"],
)
def test_a_candidate_for_another_gpu_is_a_skip(tmp_path: Path, text: str) -> None:
    """As CUDA says it, when a kernel for sm_120 is launched on sm_90; and as its compilers do."""
    pair = write_pair(tmp_path, f"def run(a, b):\n    raise RuntimeError({text!r})\n")
    comparison = compare(pair, Options(LEAST, "small", "cpu", tmp_path))
    assert isinstance(comparison, Skip)
    assert "architecture" in comparison.missing


@pytest.mark.parametrize(
    "ends",
    [
        "os.kill(os.getpid(), signal.SIGKILL)",
        "raise RuntimeError('c++: fatal error: Killed signal terminated program cc1plus')",
    ],
    ids=["the program", "its compiler"],
)
def test_a_program_that_the_system_ends_for_lack_of_memory_is_not_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    """Workers are the first to be ended, whoever took the memory."""
    candidate = f"import os, signal\ndef run(a, b):\n    {ends}\n"
    assert judge(tmp_path, candidate).verdict.value in ("invalid", "incorrect")
    counts = count()
    monkeypatch.setattr(tree, "oom_kills", lambda: next(counts))
    with pytest.raises(BenchmarkError) as error:
        judge(tmp_path, candidate)
    assert error.value.code == "NO_MEMORY"


@pytest.mark.parametrize(
    "fails",
    [
        "raise torch.OutOfMemoryError('CUDA out of memory.')",
        "raise RuntimeError('NVML_SUCCESS == DriverAPI::get()->nvmlInit_v2_() INTERNAL ASSERT FAILED at alloc.cpp:1')",
        "check(2, 'cudaIpcOpenMemHandle')",
    ],
    ids=["of its own", "that torch cannot describe", "of the harness"],
)
def test_a_program_that_finds_no_room_on_the_device_is_not_wrong(tmp_path: Path, fails: str) -> None:
    """Whoever shares the device may have taken the memory."""
    imports = "import torch\nfrom aisp_mcp.judge.protocol.shared_memory import check"
    with pytest.raises(BenchmarkError) as error:
        judge(tmp_path, f"{imports}\ndef run(a, b):\n    {fails}\n")
    assert error.value.code == "NO_MEMORY"


def test_a_child_process_that_stays_is_reported_and_ended(tmp_path: Path, honest: Comparison) -> None:
    """It daemonises itself and sleeps; neither the judge's end nor the candidate's may leave it behind. The comparison
    before has started the processes that stay.
    """
    fork = """
        import os, time
        def run(a, b, done=[]):
            if not done:
                done.append(1)
                if os.fork() == 0:
                    os.setsid()
                    time.sleep(3600)
            return a @ b
    """
    before = {process.pid for process in psutil.Process().children(recursive=True)}
    comparison = judge(tmp_path, fork)
    assert "child_process" in [flag.code for flag in comparison.flags]
    assert {process.pid for process in psutil.Process().children(recursive=True)} <= before


@pytest.mark.slow
@pytest.mark.timeout(240)  # a first call may compile, so it is given two minutes
def test_a_candidate_that_hangs_is_ended_in_time(tmp_path: Path) -> None:
    comparison = judge(tmp_path, "import time\ndef run(a, b):\n    while True:\n        time.sleep(1)\n")
    assert (comparison.verdict, comparison.flags[0].code) == ("invalid", "candidate_hang")


@pytest.mark.timeout(60)  # half of what a first call is given
def test_a_candidate_that_stops_itself_is_not_waited_for(tmp_path: Path) -> None:
    comparison = judge(tmp_path, "import os, signal\ndef run(a, b):\n    os.kill(os.getpid(), signal.SIGSTOP)\n")
    assert (comparison.verdict, comparison.flags[0].code) == ("invalid", "candidate_hang")
    assert "stopped itself" in comparison.flags[0].message


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_candidate_that_takes_all_memory_is_ended(tmp_path: Path) -> None:
    greedy = "import torch\ndef run(a, b):\n    torch.empty(1 << 45)\n    return a @ b\n"
    comparison = judge(tmp_path, greedy)
    assert comparison.verdict in ("invalid", "incorrect")


# A logistic map doubles an error in each step: after a hundred of them nothing of float32 is left.
CHAOS = "return [s := a.sigmoid(), *[s := 3.9 * s * (1 - s) for _ in range(200)]][-1]"


@pytest.mark.parametrize(
    ("baseline", "code"),
    [
        (PRODUCT.replace("return a @ b", "raise RuntimeError('no')"), "RAISED"),
        (PRODUCT.replace("return a @ b", "return a.new_empty(1 << 45)"), "NO_MEMORY"),
        (PRODUCT.replace("return a @ b", "return a.new_ones(3)"), "DEGENERATE"),
        (PRODUCT.replace("return a @ b", "return a.new_ones(3) + 3e-7 * a.flatten()[:3].sign()"), "DEGENERATE"),
        (PRODUCT.replace("return a @ b", "return (1001.3 + 4 * (a @ b).tanh()).bfloat16().float()"), "DEGENERATE"),
        (PRODUCT.replace("return a @ b", CHAOS), "UNSTABLE"),
        ('"""Nothing here."""\n', "NOT_A_BENCHMARK"),
        ("import nosuchmodule_of_anyone\n", "RAISED"),
    ],
    ids=[
        "raises",
        "takes all memory",
        "ignores its inputs",
        "ignores all but a rounding",
        "rounds its inputs away",
        "chaotic",
        "no class",
        "import fails",
    ],
)
def test_a_baseline_that_cannot_be_used_is_an_error_with_a_hint(tmp_path: Path, baseline: str, code: str) -> None:
    pair = write_pair(tmp_path, HONEST, textwrap.dedent(baseline))
    with pytest.raises(BenchmarkError) as caught:
        compare(pair, Options(LEAST, "small", "cpu", tmp_path))
    assert caught.value.code == code
    assert caught.value.hint


def test_a_baseline_may_return_infinite_values(tmp_path: Path) -> None:
    masked = "return (a @ b).masked_fill(a > 0, float('-inf'))"
    result = judge(tmp_path, *(text.replace("return a @ b", masked) for text in (HONEST, PRODUCT)))
    assert result.verdict in ("inconclusive", "faster", "slower")


def test_a_benchmark_of_the_processor_runs_there_even_if_there_is_a_gpu(tmp_path: Path) -> None:
    baseline = PRODUCT.replace("import Benchmark", "import Benchmark, Needs")
    sizes = 'n = 128\n        needs = Needs(device="cpu")\n        sizes = {"small": {"n": 96}}'
    baseline = baseline.replace("n = 128", sizes)
    candidate = "def run(a, b):\n    assert (a.device.type, len(a)) == ('cpu', 96)\n    return a @ b\n"
    result = compare(write_pair(tmp_path, candidate, baseline), Options(LEAST, "default", "cuda", tmp_path))
    assert isinstance(result, Comparison)
    assert result.verdict.value not in ("incorrect", "invalid"), result.sentence


@pytest.mark.parametrize("where", ["preset", "command line", "class"])
def test_a_size_of_zero_is_named(tmp_path: Path, where: str) -> None:
    zero = {"class": "n = 0", "preset": 'n, sizes = 128, {"small": {"n": 0}}', "command line": "n = 128"}[where]
    pair = write_pair(tmp_path, HONEST, textwrap.dedent(PRODUCT.replace("n = 128", zero)))
    size = "small,n=0" if where == "command line" else "small"
    with pytest.raises(BenchmarkError, match="same output for different inputs at the size n=0 of Product") as caught:
        compare(pair, Options(LEAST, size, "cpu", tmp_path))
    assert caught.value.hint == "Set n above 0."


def test_a_changed_log_is_noticed(tmp_path: Path, honest: Comparison) -> None:
    path, lines = tmp_path / "log.jsonl", Path(str(honest.log_path)).read_text().splitlines()
    record = json.loads(lines[2])
    record["elapsed_s"] = 1e-9
    path.write_text("\n".join([*lines[:2], json.dumps(record, separators=(",", ":")), *lines[3:]]) + "\n")
    with pytest.raises(ValueError, match=":4 does not follow"):
        check_chain(path)


def test_the_memory_goal_is_judged_by_what_the_kernel_accounts(tmp_path: Path) -> None:
    """The baseline holds sixteen copies at once, the candidate none; time plays no part in the verdict."""
    copies = """
        \"\"\"Sixteen copies, summed.\"\"\"
        from aisp_mcp.bench import Benchmark
        class Copies(Benchmark):
            goal = "memory"
            def inputs(self, rng):
                return {"a": rng.randn(512, 512)}
            def run(self, a):
                return a.expand(16, 512, 512).clone().sum(0)
    """
    comparison = judge(tmp_path, "def run(a):\n    return a * 16\n", copies, Preset("one", 1, 0.01, 1))
    assert comparison.goal == "memory"
    assert comparison.ratio is not None
    assert comparison.ratio > 4
    assert comparison.baseline is not None
    assert comparison.baseline.memory.host_peak_rss is not None
    assert comparison.baseline.memory.host_peak_rss > 12 * 512 * 512 * 4


def test_where_memory_decides_the_same_program_needs_the_same(tmp_path: Path) -> None:
    """The output that the harness keeps in a baseline's process counts for nobody; a round is one call."""
    copy = """
        \"\"\"A copy.\"\"\"
        from aisp_mcp.bench import Benchmark
        class Copy(Benchmark):
            goal = "memory"
            def inputs(self, rng):
                return {"a": rng.randn(1024, 1024)}
            def run(self, a):
                return a.clone()
    """
    comparison = judge(tmp_path, "def run(a):\n    return a.clone()\n", copy, Preset("one", 1, 0.01, 1))
    assert comparison.ratio is not None
    assert 0.8 < comparison.ratio < 1.25
    lines = [json.loads(line) for line in Path(str(comparison.log_path)).read_text().splitlines()]
    assert {line["count"] for line in lines if line["kind"] == "round"} == {1}


def test_sides_of_one_program_get_as_many_calls(tmp_path: Path) -> None:
    """One baseline process slower by its luck must not get shorter rounds: the first call of a round is the slowest."""
    uneven = """
        \"\"\"A product, twice in the first process of a replicate, which its folder names.\"\"\"
        import os
        from aisp_mcp.bench import Benchmark
        TWICE = os.getcwd().endswith("-0")
        class Uneven(Benchmark):
            def inputs(self, rng):
                return {"a": rng.randn(256, 256), "b": rng.randn(256, 256)}
            def run(self, a, b):
                if TWICE:
                    a @ b
                return a @ b
    """
    comparison = judge(tmp_path, HONEST, uneven, Preset("least", 1, 0.02, 1, isolated_rounds=1))
    lines = [json.loads(line) for line in Path(str(comparison.log_path)).read_text().splitlines()]
    counts = {line["side"]: line["count"] for line in lines if line["kind"] == "round"}
    both = [counts[role] for role in BASELINES]
    assert min(both) >= 0.85 * max(both), counts


def test_each_side_has_each_place_and_follows_each_other_equally_often(honest: Comparison) -> None:
    """The first round after a pause is some per cent slower: a program that never has it would seem faster."""
    lines = [json.loads(line) for line in Path(str(honest.log_path)).read_text().splitlines()]
    sides = [line["side"] for line in lines if line["kind"] == "round"]
    assert len(sides) == 36
    for index in range(6):
        assert Counter(sides[index::6]) == dict.fromkeys(Role, 2)
    halves = [tuple(sides[begin : begin + 3]) for begin in range(0, 36, 3)]
    followed = Counter(pair for half in halves for pair in pairwise(half))
    assert set(followed.values()) == {4}
    assert len(followed) == 6
    assert halves[::2] == [half[::-1] for half in halves[1::2]]
