"""Ranks over nodes: two on this machine, of which each has one core, a relay and the real messages between them."""

from __future__ import annotations

import os
import shutil
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from harness_support import LEAST, write_pair

from aisp_mcp.errors import Unavailable
from aisp_mcp.judge import distributed
from aisp_mcp.judge.comparison import compare
from aisp_mcp.judge.options import Nodes, Options
from aisp_mcp.judge.parent.processes.cluster import nodes
from aisp_mcp.judge.presets import PRESETS
from aisp_mcp.judge.protocol import link
from aisp_mcp.judge.protocol.layout import Layout, TensorSpec
from aisp_mcp.judge.protocol.link import LinkLost, Mirror
from aisp_mcp.judge.records import Skip
from aisp_mcp.judge.records.verdict import Comparison
from aisp_mcp.process import isolation
from aisp_mcp.validity import issues

RANKS, LOOP, TWO_RANKS = issues.snippet("ranks"), issues.snippet("loop"), issues.baseline("two_ranks")
CORES = sorted(os.sched_getaffinity(0))
TWO_NODES = Nodes((("far", ("taskset", "-c", str(CORES[0]))),))
spread = [
    pytest.mark.torch,
    pytest.mark.timeout(300),
    pytest.mark.skipif(len(CORES) < 2 or shutil.which("taskset") is None, reason="2 nodes need 2 cores and taskset"),
]

# The far rank is resumed by a timer, and computes while it should stand still.
RESUMED = """
import ctypes
import signal

class Event(ctypes.Structure):
    _fields_ = [("value", ctypes.c_void_p), ("numbers", ctypes.c_int * 14)]

def spin(*_):
    end = time.perf_counter() + 0.01
    while time.perf_counter() < end:
        pass

libc, timer, wake = ctypes.CDLL("librt.so.1"), ctypes.c_void_p(), Event(None, (signal.SIGCONT, 0))
libc.timer_create(1, ctypes.byref(wake), ctypes.byref(timer))

def resume(every):
    signal.signal(signal.SIGCONT, spin)
    libc.timer_settime(timer, 0, (ctypes.c_long * 4)(0, every, 0, every), None)
"""
# What the far rank does before its part of the work, and the flags of which one says so.
ATTACKS = {
    "skips its work": ("dist.all_reduce(share.clone()); return share", "incorrect_output"),
    "answers early": (  # stopped then, it keeps the first rank waiting, or the next round finds its second answer
        "dist.all_reduce(share); os.write(DONE, b'D'); return share",
        "candidate_forged incorrect_unwritten incorrect_output incorrect_raised",
    ),
    "stores nothing": ("type(loop()['self']).store = lambda *_: None", "incorrect_unwritten"),
    "works outside": ("resume(60_000_000)", "candidate_ran_outside candidate_unstoppable"),
    "raises": ("raise ValueError('not over there')", "incorrect_raised"),
    "never answers": ("while True: pass", "candidate_hang incorrect_raised"),
    "ends": ("os._exit(3)", "candidate_crashed incorrect_raised"),
}


def far(then: str) -> str:
    """A candidate that does its work, and on the far rank something else first."""
    work = f"def work(rank, share):\n    if rank:\n        {then}\n    dist.all_reduce(share)\n    return share\n"
    return RANKS + "\n" + LOOP + RESUMED + work


HONEST = far("pass")


@pytest.fixture(autouse=True, scope="module")
def _no_relay_is_left() -> Iterator[None]:
    yield
    nodes.close()


def judge(folder: Path, candidate: str, preset: object = LEAST, over: Nodes = TWO_NODES) -> Comparison:
    comparison = compare(write_pair(folder, candidate, TWO_RANKS), Options(preset, "small", "cpu", folder, nodes=over))  # type: ignore[arg-type]
    assert isinstance(comparison, Comparison)
    return comparison


class TestOverTwoNodes:
    pytestmark = spread

    def test_an_honest_pair_is_judged_and_what_that_rests_on_is_said(self, tmp_path: Path) -> None:
        """A candidate in another folder has the common file of the baseline on each node."""
        suite, elsewhere = tmp_path / "suite", tmp_path / "elsewhere"
        suite.mkdir()
        elsewhere.mkdir()
        shared = "from _common import reduced\n"
        (suite / "_common.py").write_text(
            "import torch.distributed as dist\ndef reduced(share):\n    dist.all_reduce(share)\n    return share\n"
        )
        pair = write_pair(suite, shared + RANKS + "work = lambda rank, share: reduced(share)\n", shared + TWO_RANKS)
        pair = replace(pair, path=pair.path.rename(elsewhere / "mine.py"))
        comparison = compare(pair, Options(LEAST, "small", "cpu", tmp_path, nodes=TWO_NODES))
        assert isinstance(comparison, Comparison)
        assert comparison.disclosed["common_sha256"]
        assert comparison.verification is not None
        assert (comparison.verification.failure, comparison.verification.checked > 0) == (None, True)
        assert comparison.verdict.value in ("inconclusive", "faster", "slower", "same")
        [note] = [flag for flag in comparison.flags if flag.code == "ranks_over_nodes"]
        assert (note.severity, note.evidence) == ("note", {"nodes": 2, "others": "far"})
        assert comparison.disclosed["link"] == "network between nodes"
        assert "µs apart" in comparison.disclosed["ranks_apart"]
        [far] = comparison.disclosed["other_nodes"]
        assert (far["name"], far["cpus"], 0 < far["round_trip_s"] < 1) == ("far", 1, True)
        assert not {flag.code for flag in comparison.flags if flag.severity == "fatal"}

    @pytest.mark.parametrize(
        "what", [pytest.param(name, marks=[] if name == "stores nothing" else [pytest.mark.slow]) for name in ATTACKS]
    )
    def test_what_the_far_rank_does_is_found(self, tmp_path: Path, what: str) -> None:
        then, codes = ATTACKS[what]
        comparison = judge(tmp_path, far(then))
        fatal = {flag.code for flag in comparison.flags if flag.severity == "fatal"}
        assert fatal & set(codes.split()), (comparison.sentence, comparison.flags)
        assert comparison.verdict.value in ("incorrect", "invalid")
        waiting = [node for kept in nodes._kept.values() for node in kept if node.pending]
        assert [node.process.poll() for node in waiting if node.process.poll() is None] == []

    @pytest.mark.slow
    def test_eight_more_collectives_are_slower_as_on_one_node(self, tmp_path: Path) -> None:
        slow = HONEST.replace(
            "dist.all_reduce(share)", "[dist.all_reduce(one) for one in [share.clone()] * 8 + [share]]"
        )
        apart = judge(tmp_path, slow, PRESETS["quick"])
        together = judge(tmp_path, slow, PRESETS["quick"], Nodes())
        assert apart.ratio is not None
        assert together.ratio is not None
        assert max(apart.ratio, together.ratio) < 0.7

    @pytest.mark.slow
    @pytest.mark.parametrize("others", [1, 3], ids=["two ranks on each", "three relays"])
    def test_every_rank_of_every_node_is_looked_at(self, tmp_path: Path, others: int) -> None:
        four = TWO_RANKS.replace("ranks = 2", "ranks = 4").replace("range(2)", "range(4)")
        four = four.replace('[ranks[0]["share"] + ranks[1]["share"]] * 2', '[sum(one["share"] for one in ranks)] * 4')
        over = Nodes(tuple((f"node {number}", ()) for number in range(others)))
        right = compare(write_pair(tmp_path, HONEST, four), Options(LEAST, "small", "cpu", tmp_path, nodes=over))
        assert isinstance(right, Comparison)
        assert not [flag for flag in right.flags if flag.severity == "fatal"], right.sentence
        assert len(right.disclosed["other_nodes"]) == others
        last = HONEST.replace("return share", "return share + (rank == 3)")
        wrong = compare(write_pair(tmp_path, last, four), Options(LEAST, "small", "cpu", tmp_path, nodes=over))
        assert isinstance(wrong, Comparison)
        assert wrong.verdict == "incorrect"
        assert "rank03" in wrong.flags[0].message

    @pytest.mark.slow
    def test_a_node_without_the_files_is_named(self, tmp_path: Path) -> None:
        if isolation.probe().level not in isolation.NAMESPACES:
            pytest.skip("no namespaces")
        blind = isolation.wrap([], "L2", read_only=False, hidden=(tmp_path,), network=True)
        with pytest.raises(Unavailable, match=r"Node far has no file .*baseline_product.py") as refused:
            judge(tmp_path, HONEST, over=Nodes((("far", tuple(blind)),)))
        assert refused.value.code == "NODE_FILES"


def test_a_relay_that_does_not_come_is_an_error_with_its_words() -> None:
    gone = Nodes((("far", ("sh", "-c", "echo no such partition; exit 1", "sh")),))
    with pytest.raises(Unavailable, match="no such partition") as refused:
        nodes.started(gone)
    assert refused.value.code == "NODE_LOST"


def test_only_who_knows_the_secret_is_let_in() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        told = [socket.create_connection(("127.0.0.1", port)) for _ in range(3)]
        for one, words in zip(told, ("a" * link.SECRET, "short", "b" * link.SECRET), strict=True):
            one.sendall(words.encode())
        told[1].close()
        name, met = link.accept(listener, {"far": "b" * link.SECRET}, 30.0)
        assert name == "far"
        assert met.fileno() > 0
        assert told[0].recv(1) == b""  # sent away
        for one in (*told, met):
            one.close()
        with pytest.raises(LinkLost):
            link.accept(listener, {"far": "b" * link.SECRET}, 0.01)


def test_tensors_travel_with_their_guards_and_an_end_in_between_is_noticed() -> None:
    spec = TensorSpec("x", "float32", (4,), (1,), 4)
    layout = Layout((spec,), (spec,), (spec,), 3)
    here, there = (Mirror([os.memfd_create("arena", os.MFD_ALLOW_SEALING)], [layout]) for _ in range(2))
    [bytes_here] = here.parts(2, params=True)
    bytes_here[:] = os.urandom(len(bytes_here))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        one = link.connect(*listener.getsockname(), "b" * link.SECRET)
        _, other = link.accept(listener, {"far": "b" * link.SECRET}, 30.0)
    sender = threading.Thread(target=one.send, args=({"calls": 2}, here.parts(2)))
    sender.start()
    message, data = other.receive(30.0)
    sender.join()
    assert message == {"calls": 2}
    there.fill(data, 2)
    assert bytes(there.parts(2)[0]) == bytes(here.parts(2)[0])
    assert bytes(there.parts(0, params=True)[0]) == bytes(layout.params_bytes)
    with pytest.raises(LinkLost, match="bytes of tensors"):
        there.fill(data, 3)
    with pytest.raises(LinkLost, match="no message"):
        other.receive(0.0)
    one.close()
    with pytest.raises(LinkLost, match="closed"):
        other.receive(30.0)
    other.close()


@pytest.mark.parametrize(
    ("ranks_", "nodes_", "lack"),
    [(2, 2, ""), (3, 2, "as many ranks on each of 2 nodes, not 3 in all"), (64, 2, "32 cores for 32 ranks")],
)
def test_ranks_are_spread_evenly(tmp_path: Path, ranks_: int, nodes_: int, lack: str) -> None:
    baseline = write_pair(tmp_path, HONEST, TWO_RANKS).baseline
    missing = distributed.lacks(baseline, f"small,ranks={ranks_}", nodes=nodes_)
    assert missing.startswith(lack) if len(CORES) < 32 else True
    assert distributed.unmeasured("memory", 2, "cpu", 2) == "one node: the goal memory over 2 nodes is not measured"
    assert distributed.unmeasured("speed", 2, "cuda", 2) == "one node: NCCL over 2 nodes is not measured"


def test_more_ranks_than_a_node_has_cores_is_a_skip(tmp_path: Path) -> None:
    pair = write_pair(tmp_path, HONEST, TWO_RANKS)
    comparison = compare(pair, Options(LEAST, "small,ranks=3", "cpu", tmp_path, nodes=TWO_NODES))
    assert isinstance(comparison, Skip)
