"""Dumps and logs of jobs that stand still: who waits for whom, in the shapes that PyTorch and NCCL write."""

from __future__ import annotations

import json
import pickle

import pytest

from aisp_mcp.errors import UsageError
from aisp_mcp.profile.overview.tools import ReadParams, aisp_profile_read

_GROUP = "[0, 1, 2, 3]"


def _entry(number, name="nccl:all_reduce", state="scheduled", group="0", **facts):
    pair = name.rpartition(":")[2].startswith(("send", "recv"))
    return {
        "process_group": (group, "default_pg"), "profiling_name": name, "state": state, "is_p2p": pair,
        "collective_seq_id": 0 if pair else number, "p2p_seq_id": number if pair else 0, "input_sizes": [[8]], **facts,
    }  # fmt: skip


def _dump(entries, groups=None):
    config = {name: {"name": name, "desc": "", "ranks": ranks} for name, ranks in (groups or {"0": _GROUP}).items()}
    return {"version": "2.9", "pg_config": config, "pg_status": {}, "entries": entries}


def _read(folder, dumps, write=lambda path, dump: path.write_bytes(pickle.dumps(dump, 2))):
    for rank, dump in enumerate(dumps):
        write(folder / f"nccl_trace_rank_{rank}", dump)
    return aisp_profile_read(ReadParams(profile=str(folder)), None)


@pytest.mark.parametrize("as_json", [False, True])
def test_the_rank_without_the_call_holds_the_others_up(as_json, tmp_path):
    dumps = [_dump([_entry(7)]), _dump([]), _dump([_entry(7)]), _dump([_entry(7), _entry(8)])]
    write = (lambda path, dump: path.write_text(json.dumps(dump))) if as_json else _read.__defaults__[0]
    answer = _read(tmp_path, dumps, write)
    assert (answer.held_up_by, answer.held_up) == ([1], [0, 2, 3])
    assert answer.opening[0].text.startswith("Of 4 dumps, rank 1 waits for nobody, and 3 ranks wait for it")
    assert "Ranks 0, 2 and 3 wait in nccl:all_reduce, number 7" in answer.opening[1].text
    assert "whose dump has no such call" in answer.opening[1].text


def test_a_rank_whose_device_is_stuck_has_the_call_that_others_have_finished(tmp_path):
    stuck = _dump([_entry(number) for number in (4, 5, 6, 7)])
    answer = _read(tmp_path, [_dump([_entry(7)]), _dump([_entry(7)]), stuck, _dump([_entry(7)])])
    assert (answer.held_up_by, answer.held_up, answer.waits[0].reason) == ([2], [0, 1, 3], "not finished")
    assert "nvidia-smi" in answer.opening[2].text


def test_waiting_is_followed_through_pipelines_to_its_end(tmp_path):
    """0 waits for 2, which has its part of that pair queued behind a collective that 3 has not called."""
    groups = {"pipe": "[0, 2]", "rows": "[2, 3]", "idle": "[1, 3]"}
    first = _dump([_entry(5, "nccl:recv 0<-1", group="pipe")], groups)
    third = _dump([_entry(9, group="rows"), _entry(5, "nccl:send 1->0", group="pipe")], groups)
    answer = _read(tmp_path, [first, _dump([_entry(1, group="idle")], groups), third, _dump([], groups)])
    assert (answer.held_up_by, answer.held_up) == ([3], [0, 1, 2])
    assert {wait.reason for wait in answer.waits} == {"no call", "queued"}


def test_another_collective_with_the_same_number_is_named(tmp_path):
    dumps = [_dump([_entry(7)]), _dump([_entry(7)]), _dump([_entry(7, "nccl:all_gather")]), _dump([_entry(7)])]
    answer = _read(tmp_path, dumps)
    assert {wait.reason for wait in answer.waits} == {"other call"}
    assert "different call" in answer.opening[2].text


def test_nobody_is_blamed_where_all_stand_in_the_same_call_or_none_does(tmp_path):
    answer = _read(tmp_path, [_dump([_entry(7)])] * 4)
    assert (answer.held_up_by, answer.waits) == ([], [])
    assert "none waits for another to call" in answer.opening[0].text
    answer = _read(tmp_path, [_dump([_entry(7, state="completed")])] * 4)
    assert "No call is pending in 4 dumps with 4 records" in answer.opening[0].text


def test_missing_dumps_and_single_ones_are_said(tmp_path):
    answer = _read(tmp_path, [_dump([_entry(7)])] * 3)
    assert (answer.held_up_by, answer.waits[0].reason) == ([3], "no dump")
    assert answer.diagnostics == ["Reader: there is no dump of rank 3."]
    alone = aisp_profile_read(ReadParams(profile=str(tmp_path / "nccl_trace_rank_2")), None)
    assert "Rank 2 has 1 call that did not complete" in alone.opening[0].text


class _Calls:
    def __reduce__(self):
        return print, ("called",)


def test_a_dump_that_calls_is_refused(tmp_path):
    (tmp_path / "nccl_trace_rank_0").write_bytes(pickle.dumps({"pg_config": {}, "entries": [_Calls()]}))
    with pytest.raises(UsageError, match=r"names the global builtins\.print"):
        aisp_profile_read(ReadParams(profile=str(tmp_path / "nccl_trace_rank_0")), None)


def _log(tmp_path, *lines):
    (tmp_path / "job.log").write_text("\n".join(lines) + "\n")
    return [row.text for row in aisp_profile_read(ReadParams(profile=str(tmp_path / "job.log")), None).opening]


def _call(process, rank, number, name="AllReduce", before=""):
    fields = f"opCount {number:x} sendbuff 0x7f recvbuff 0x7f count 64 datatype 7 op 0 root 0 comm 0x5{rank} [nranks=2]"
    return f"{before}node:{process}:{process} [{rank}] NCCL INFO {name}: {fields} stream 0x1"


def _init(process, rank, phase):
    where = f"comm 0x5{rank} rank {rank} nranks 2 cudaDev {rank} nvmlDev {rank} busId 1000 commId 0xab"
    return f"node:{process}:{process} [{rank}] NCCL INFO {where} - Init {phase}"


def test_a_log_tells_how_far_each_rank_came(tmp_path):
    starts = [_init(10 + rank, rank, phase) for rank in (0, 1) for phase in ("START", "COMPLETE")]
    calls = [_call(10, 0, number) for number in range(20)] + [_call(11, 1, number) for number in range(19)]
    assert "the log of rank 1 ends before that of the others (call 0x12" in _log(tmp_path, *starts, *calls)[0]
    other = [*calls[:-1], _call(11, 1, 18, "AllGather")]
    assert (
        "call 0x12 differs between ranks: AllGather on rank 1; AllReduce on rank 0"
        in _log(tmp_path, *starts, *other)[0]
    )
    assert "1 of the 2 ranks that began did not report" in _log(tmp_path, *starts[:3])[0]


def test_one_process_with_two_devices_and_lines_run_together(tmp_path):
    """nccl-tests with -g 2: all calls have number 0, and a line begins within the table that the program prints."""
    starts = [_init(10, rank, phase) for rank in (0, 1) for phase in ("START", "COMPLETE")]
    calls = [_call(10, rank, 0, before="28.55      0" if turn else "") for turn in range(5) for rank in (0, 1)]
    assert "2 of 2 ranks log calls; all of them reach 5 calls" in _log(tmp_path, *starts, *calls)[0]


def test_timeouts_of_the_watchdog_are_counted_by_global_rank(tmp_path):
    lines = [
        f"[rank{rank}]:[E218 04:54:22.1 ProcessGroupNCCL.cpp:616] [Rank {rank % 2}] Watchdog caught collective "
        "operation timeout: WorkNCCL(SeqNum=216, OpType=ALLREDUCE, NumelIn=8, NumelOut=8, Timeout(ms)=600000) ran "
        "for 600045 milliseconds before timing out."
        for rank in (13, 15)
    ]
    status = "[rank14]:[E218 04:54:22.8 ProcessGroupNCCL.cpp:1795] [PG ID 0 PG GUID 0(default_pg) Rank 14] heartbeat"
    text = _log(tmp_path, *lines, status)[0]
    assert text.startswith("Ranks 13 and 15 report a timeout of ALLREDUCE, number 216; rank 14, which also writes")
