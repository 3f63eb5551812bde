"""Twenty planted regressions are attributed to what was made worse; a profile against itself is neutral."""

import dataclasses

import oracle_tools
import pytest
from problems import PRODUCT, STEPS
from simulate import GEMM, MS, POINTWISE, US, Sim, compute, ncu_csv, step

from aisp_mcp.errors import AispError
from aisp_mcp.profile import compare, load
from aisp_mcp.profile.timeline import summarize
from aisp_mcp.profile.timeline.columns import Ops

NSYS = oracle_tools.DATA / "train_step_h200.nsys.sqlite.gz"
KINETO = oracle_tools.DATA / "train_step_h200.kineto.json.gz"
RAW = oracle_tools.DATA / "five_kernels_h200.ncu-raw.csv.gz"
NAMES = ("embed", "attn_fwd", "mlp_up", "mlp_down", "norm_kernel", "attn_bwd", "grad_w", "adam_kernel")


def _trace(path, change=None, times=1.0, before=None, after=None):
    """Eight kernels per step; one of them may take longer, or something may happen before or after."""
    sim = Sim()

    def body():
        if before:
            before(sim)
        for name in NAMES:
            sim.kernel(name, int(300 * US * (times if name == change else 1)))
        compute(sim, 10)
        sim.collective(1 * MS, 64 << 20, after=7)
        sim.free[0, 7] = sim.free[0, 20]
        if after:
            after(sim)

    for number in range(STEPS):
        step(sim, number, body)
    return load.load(sim.kineto(path), "steady")


def _late_host(sim):
    sim.drained()
    sim.host(2 * MS)


def _slow_copy(sim):
    sim.copy("HtoD (Pinned -> Device)", 64 << 20, 2 * MS)


def _event(sim):
    sim.free[0, 9] = max(sim.free.values(), default=sim.now) + 2 * MS
    sim.kernel("embed", 1 * US, after=9)


def _second_allreduce(sim):
    sim.collective(2 * MS, 64 << 20, after=7)
    sim.free[0, 7] = sim.free[0, 20]


REGRESSIONS = [(f"{name} x{times}", {"change": name, "times": times}, name) for name in NAMES for times in (1.5, 3.0)]
REGRESSIONS += [
    ("host late", {"before": _late_host}, "idle: host"),
    ("copy in line", {"before": _slow_copy}, "exposed copies"),
    ("event awaited", {"before": _event}, "idle: dependency"),
    ("new kernel", {"after": lambda sim: sim.kernel("debug_check_finite", 2 * MS)}, "debug_check_finite"),
    ("more products", {"after": lambda sim: compute(sim, 10)}, GEMM),
    ("second allreduce", {"before": _second_allreduce}, "nccl"),
]


@pytest.mark.parametrize(("what", "worse", "expected"), REGRESSIONS, ids=[r[0] for r in REGRESSIONS])
def test_a_regression_is_attributed(what, worse, expected, tmp_path):
    a, b = _trace(tmp_path / "a.json"), _trace(tmp_path / "b.json", **worse)
    difference = compare.compare(a, b)
    assert difference.verdict == "slower"
    assert expected in difference.explained_by, (difference.explained_by, difference.phases)
    back = compare.compare(b, a)
    assert back.verdict == "faster"
    assert expected in back.explained_by
    assert back.ratio == pytest.approx(1 / difference.ratio)


def test_there_are_twenty():
    assert len(REGRESSIONS) >= 20


def _replayed(trace, name, times):
    """The same trace with every launch of one kernel taking longer.

    The host launches when it did; what waited for the device waits longer.
    """
    launches = {call.link: call.start for call in trace.api}
    before = after = 0  # where the device's last operation ended, then and now
    ops = []
    for op in sorted(trace.gpu):
        gap = op.start - before
        late_host = gap > 0 and launches.get(op.link, 0) >= before
        start = max(op.start, after + 1000) if late_host or not before else after + gap
        end = start + round((op.end - op.start) * (times if op.name == name else 1))
        ops.append(op._replace(start=start, end=end))
        before, after = max(before, op.end), max(after, end)
    return dataclasses.replace(trace, gpu=Ops(ops))


@pytest.mark.parametrize("path", [NSYS, KINETO], ids=["nsys", "kineto"])
@pytest.mark.parametrize("place", range(5))
def test_a_slower_kernel_of_a_real_capture_is_named(path, place):
    """The five largest kernels of each capture, one at a time. The step is bound by launches: small changes hide."""
    trace = load.load_trace(path)
    before = summarize.profile(trace, "steady")
    name = before.timeline.kernels[place].name
    after = summarize.profile(_replayed(trace, name, 20.0), "steady")
    difference = compare.compare(before, after)
    assert (difference.verdict, difference.kernels[0].name) == ("slower", name)
    assert name in difference.explained_by
    grown = 19 * before.timeline.kernels[place].total_ns / len(before.timeline.steps)
    assert difference.kernels[0].change_ns == pytest.approx(grown, rel=1e-6)


@pytest.mark.parametrize("path", [NSYS, KINETO], ids=["nsys", "kineto"])
@pytest.mark.parametrize("scope", ["all", "steady"])
def test_self_comparison_is_neutral(path, scope):
    profile = load.load(path, scope)
    difference = compare.compare(profile, profile)
    assert (difference.verdict, difference.ratio, difference.explained_by) == ("same", 1.0, None)
    assert all(d.change_ns == 0 for d in (*difference.kernels, *difference.phases, *difference.memory, *difference.api))


def test_phases_add_up_to_the_change(tmp_path):
    difference = compare.compare(_trace(tmp_path / "a.json"), load.load(NSYS, "steady"))
    assert sum(d.change_ns for d in difference.phases) == pytest.approx(difference.window.change_ns, abs=1e-3)


def test_other_devices_are_not_comparable(tmp_path):
    a = load.load(NSYS, "steady")
    other = a.model_copy(update={"devices": [a.devices[0].model_copy(update={"name": "NVIDIA L4"})]})
    difference = compare.compare(a, other)
    assert (difference.verdict, difference.ratio) == ("not comparable", None)
    assert "NVIDIA L4" in difference.warnings[0]


def test_renamed_template_numbers_still_match(tmp_path):
    first, two = Sim(), Sim()
    for sim, version in ((first, 80), (two, 90)):
        for number in range(4):
            step(sim, number, lambda sim=sim, version=version: sim.kernel(f"gemm_sm{version}_kernel", 1 * MS))
    a, b = (load.load(s.kineto(tmp_path / f"{i}.json"), "steady") for i, s in enumerate((first, two)))
    assert len(compare.compare(a, b).kernels) == 1


def test_a_profile_without_a_device_is_refused(tmp_path):
    sim = Sim()
    with sim.range("aten::mm", operator=True):
        sim.host(10)
    path = sim.kineto(tmp_path / "cpu.json")
    with pytest.raises(AispError) as caught:
        compare.compare(load.load(path), load.load(path))
    assert caught.value.code == "WRONG_KIND"


def test_ncu_reports_match_launch_by_launch(tmp_path):
    report = load.load(RAW)
    difference = compare.compare_ncu(report, report)
    assert len(difference.matched) == 16
    assert all(s.ratio == 1.0 and s.a_bound == s.b_bound for s in difference.matched)
    faster = {**PRODUCT, "gpu__time_duration.sum": 50_000.0, "sm__throughput.avg.pct_of_peak_sustained_elapsed": 20.0}
    a = load.load(ncu_csv(tmp_path / "a.csv", [PRODUCT, {**PRODUCT, "name": POINTWISE}]))
    b = load.load(ncu_csv(tmp_path / "b.csv", [faster]))
    difference = compare.compare_ncu(a, b)
    assert difference.matched[0].ratio == 2.0
    assert (difference.matched[0].a_bound, difference.matched[0].b_bound) == ("compute-bound (tensor)", "near a roof")
    assert difference.only_a == [POINTWISE]
