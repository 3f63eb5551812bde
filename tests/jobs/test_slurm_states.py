"""The watcher against stand-in commands: Slurm's words, commands that fail, and jobs that are submitted once."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from waiting import until

from aisp_mcp.errors import AispError, UsageError
from aisp_mcp.jobs.executors import handover
from aisp_mcp.jobs.executors.placement import placement, read_minutes
from aisp_mcp.jobs.executors.slurm import (
    Slurm,
    check_limits,
    gpus_of,
    read_accounting,
    read_queue,
    slurm_time,
    waits_because,
)
from aisp_mcp.jobs.manager import Jobs
from aisp_mcp.jobs.watcher import Watcher
from aisp_mcp.store.cluster import ClusterQueue
from aisp_mcp.store.database import Store
from aisp_mcp.store.records.job import Job, JobState

# The queue is a file; every 20th call of a command fails, sbatch by turns before and after it has taken the job.
SBATCH = """#!/bin/sh
n=$(cat $D/calls); n=$((n + 1)); echo $n > $D/calls
fail() { echo "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation" >&2; exit 1; }
[ $((n % 40)) -eq 7 ] && fail
id=$((n + 100))
echo "$id|PENDING|Resources|N/A||$(sed -n 's/^#SBATCH --job-name=//p' "$2")" >> $D/queue
[ $((n % 40)) -eq 27 ] && fail
echo $id
"""
SQUEUE = """#!/bin/sh
n=$(cat $D/asked); n=$((n + 1)); echo $n > $D/asked
[ $((n % 20)) -eq 3 ] && { echo "slurm_load_jobs error: Unable to contact slurm controller" >&2; exit 1; }
cat $D/queue
"""
NO_SACCT = "#!/bin/sh\necho 'Slurm accounting storage is disabled' >&2\nexit 1\n"
FAILS = "#!/bin/sh\necho 'error: Invalid job id specified' >&2\nexit 1\n"


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder first on PATH, with an empty queue and no accounting."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    for name in ("calls", "asked"):
        (folder / name).write_text("0")
    (folder / "queue").touch()
    for name, text in {"sbatch": SBATCH, "squeue": SQUEUE, "sacct": NO_SACCT, "scontrol": FAILS}.items():
        put(folder, name, text)
    put(folder, "scancel", '#!/bin/sh\necho "$@" >> $D/cancelled\n')
    return folder


def put(folder: Path, name: str, text: str) -> None:
    """Write a command; $D in it is the folder."""
    (folder / name).write_text(text.replace("$D", str(folder)))
    (folder / name).chmod(0o700)


def enter(store: Store, number: int, **columns: object) -> str:
    """A queued row for Slurm, as submitting makes it, without a watcher being started."""
    folder = store.home / "runs" / f"j_{number}"
    folder.mkdir(parents=True)
    job = Job(
        id=f"j_{number}", tool="aisp_test_work", params={}, state=JobState.QUEUED, timeout_s=60,
        created_at=time.time(), run_dir=str(folder), resources=(f"slurm:j_{number}",),
    )  # fmt: skip
    resources = placement({}, 60, exclusive=False).as_dict()
    store.insert_job(job, python="/usr/bin/python3", cwd="/", env={}, executor="slurm", placement=resources)
    for name, value in columns.items():
        store.db.change(f"UPDATE jobs SET {name} = ? WHERE id = ?", value, job.id)
    return job.id


def ended(store: Store, job_id: str) -> tuple[JobState, str]:
    job = store.job(job_id)
    assert job.envelope is not None
    return job.state, job.envelope["error"]["code"]


def test_no_job_is_submitted_twice_while_commands_fail(store: Store, commands: Path) -> None:
    count = 100
    ids = [enter(store, number) for number in range(count)]
    watcher = Watcher(store.db, "slurm", Slurm(), settle_s=0.05)
    active = ClusterQueue(store.db, "slurm").active

    def all_known() -> bool:
        watcher.look()
        return all(row["handle"] for row in active())

    until(all_known, 50)
    names = [line.rpartition("|")[2] for line in (commands / "queue").read_text().splitlines()]
    assert sorted(names) == sorted(f"aisp-{job_id}" for job_id in ids)
    failures = int((commands / "calls").read_text()) - count
    assert failures > 0  # some submissions were tried again
    handles = {row["id"]: row["handle"] for row in active()}
    lines = (commands / "queue").read_text().split()
    taken = {line.rpartition("|aisp-")[2]: line.partition("|")[0] for line in lines}
    assert handles == taken


def test_a_second_submission_under_one_name_is_cancelled_and_does_nothing(store: Store, commands: Path) -> None:
    job_id = enter(store, 1, spawns=1, spawned_at=time.time())
    (commands / "queue").write_text(f"12|PENDING|Resources|N/A||aisp-{job_id}\n9|PENDING|Priority|N/A||aisp-{job_id}\n")
    Watcher(store.db, "slurm", Slurm()).look()
    assert ClusterQueue(store.db, "slurm").active()[0]["handle"] == "9"
    assert (commands / "cancelled").read_text().split() == ["12"]
    folder = Path(store.job(job_id).run_dir)
    assert [handover.take_claim(folder, handle) for handle in ("9", "12", "9")] == [True, False, True]


WORDS = [
    ("CANCELLED", "0:0", JobState.CANCELLED, "CANCELLED"),
    ("TIMEOUT", "0:0", JobState.FAILED, "TIMEOUT"),
    ("OUT_OF_MEMORY", "0:125", JobState.FAILED, "OUT_OF_MEMORY"),
    ("NODE_FAIL", "0:0", JobState.FAILED, "NODE_FAIL"),
    ("PREEMPTED", "0:0", JobState.FAILED, "PREEMPTED"),
    ("FAILED", "3:0", JobState.FAILED, "CRASHED"),
    ("COMPLETED", "0:0", JobState.FAILED, "NO_RESULT"),
]


@pytest.mark.parametrize("source", ["squeue", "sacct", "scontrol", "jobcomp"])
@pytest.mark.parametrize(("word", "code", "state", "name"), WORDS)
def test_each_end_has_its_state_whoever_tells_it(
    store: Store, commands: Path, source: str, word: str, code: str, state: JobState, name: str
) -> None:
    job_id = enter(store, 1, handle="7", spawns=1, state="running", started_at=time.time())
    line = f"JobId=7 JobName=aisp-{job_id} JobState={word} ExitCode={code} NodeList=n1"
    if source == "squeue":
        (commands / "queue").write_text(f"7|{word}|None|N/A|n1|aisp-{job_id}\n")
    elif source == "sacct":
        by = " by 1000" if word == "CANCELLED" else ""
        put(commands, "sacct", f"#!/bin/sh\necho '7|{word}{by}|{code}|n1|aisp-{job_id}'\n")
    elif source == "scontrol":
        put(commands, "scontrol", f"#!/bin/sh\necho '{line}'\n")
    else:
        (commands / "done.txt").write_text(f"JobId=70 JobState=COMPLETED\n{line}\n")
        config = f"JobCompLoc = {commands}/done.txt\nJobCompType = jobcomp/filetxt"
        put(commands, "scontrol", f"#!/bin/sh\n[ $2 = config ] && echo '{config}'\n")
    Watcher(store.db, "slurm", Slurm(), grace_s=0.0).look()
    assert ended(store, job_id) == (state, name)


def test_a_controller_that_does_not_answer_ends_nothing(store: Store, commands: Path) -> None:
    job_id = enter(store, 1, handle="7", spawns=1, state="running", started_at=time.time())
    put(commands, "squeue", FAILS)
    watcher = Watcher(store.db, "slurm", Slurm(), grace_s=0.0)
    assert [watcher.look() for _ in range(3)] == [True] * 3
    assert store.job(job_id).state is JobState.RUNNING


def test_an_answer_counts_although_nobody_remembers_the_job(store: Store, commands: Path) -> None:
    job_id = enter(store, 1, handle="7", spawns=1)
    folder = Path(store.job(job_id).run_dir)
    handover.take_claim(folder, "7")
    (folder / "envelope.json").write_text('{"tool": "aisp_test_work", "status": "ok", "result": {}}')
    made = {"measurements": [dict(kind="k", device="d", value=2.5, unit="u", detail="{}", created_at=1.0)]}
    handover.write(folder, handover.ROWS, made)
    put(commands, "squeue", FAILS)
    watcher = Watcher(store.db, "slurm", Slurm())
    assert watcher.look()  # it has started, and its end has not been written
    assert store.job(job_id).state is JobState.RUNNING
    handover.write(folder, handover.EXIT, {"state": "succeeded", "exit_code": 0, "started_at": 1.0})
    assert not watcher.look()
    assert store.job(job_id).state is JobState.SUCCEEDED
    assert [row["value"] for row in store.db.all("SELECT value FROM measurements")] == [2.5]


def test_a_job_that_was_never_submitted_is_cancelled_without_slurm(store: Store, commands: Path) -> None:
    job_id = enter(store, 1, cancel=1)
    Watcher(store.db, "slurm", Slurm()).look()
    assert ended(store, job_id) == (JobState.CANCELLED, "CANCELLED")
    assert (commands / "queue").read_text() == ""


def test_a_refusal_is_final_and_says_slurms_reason(store: Store, commands: Path) -> None:
    refusal = "sbatch: error: Batch job submission failed: Invalid partition name specified"
    put(commands, "sbatch", f"#!/bin/sh\necho '{refusal}' >&2\nexit 1\n")
    job_id = enter(store, 1)
    Watcher(store.db, "slurm", Slurm()).look()
    assert ended(store, job_id) == (JobState.FAILED, "SLURM_REFUSED")
    assert "Invalid partition name specified" in (store.job(job_id).reason or "")


def test_output_of_several_versions_is_read() -> None:
    lines = "17_3|PENDING|Resources|2026-01-02T03:04:05||a\n21+1|RUNNING|None|N/A|n[1-2]|x|y\nslurm_load: warning\n"
    assert [(job.handle, job.state, job.name) for job in read_queue(lines)] == [
        ("17_3", "PENDING", "a"),
        ("21+1", "RUNNING", "x|y"),
    ]
    rows = read_accounting("5|CANCELLED by 1000|0:15|n1|a\n6|OUT_OF_MEMORY|0:125|n1|b\n8|FAILED|3:0|None assigned|c\n")
    assert [(job.state, job.code) for job in rows] == [("CANCELLED", -15), ("OUT_OF_MEMORY", -125), ("FAILED", 3)]


def test_reasons_are_words() -> None:
    assert waits_because("Resources", "2026-01-02T03:04:05").endswith("; expected start 2026-01-02T03:04:05")
    assert waits_because("(ReqNodeNotAvail, UnavailableNodes:n2)", "N/A").startswith("a node that it needs is down")
    assert waits_because("QOSNewInNextVersion", "N/A") == "Slurm says QOSNewInNextVersion"


@pytest.mark.parametrize(
    ("text", "minutes"),
    [("90", 90), ("1:30", 2), ("2:00:00", 120), ("1-0", 1440), ("1-2:30", 1590), ("1-00:00:01", 1441)],
)
def test_times_are_read_as_slurm_reads_them(text: str, minutes: int) -> None:
    assert read_minutes(text) == minutes
    assert read_minutes(slurm_time(minutes)) == minutes


@pytest.mark.parametrize(
    "environ", [{"AISP_PARTITION": "a b"}, {"AISP_ACCOUNT": "x\n#SBATCH --wrap=evil"}, {"AISP_TIME": "soon"}]
)
def test_what_is_no_name_or_time_is_refused(environ: dict[str, str]) -> None:
    with pytest.raises(UsageError) as error:
        placement(environ, 60, exclusive=False)
    assert error.value.code == "BAD_PLACEMENT"


PARTITIONS = (
    "PartitionName=main AllowAccounts=lab,own Default=YES MaxNodes=UNLIMITED MaxTime=1-00:00:00 State=UP TotalNodes=4\n"
    "PartitionName=old AllowAccounts=ALL Default=NO MaxNodes=1 MaxTime=UNLIMITED State=DOWN TotalNodes=1\n"
)


@pytest.mark.parametrize(
    ("environ", "says"),
    [
        ({"AISP_TIME": "25:00:00"}, "1500 min is above the limit of partition main"),
        ({"AISP_NODES": "5"}, "partition main has 4 nodes, not 5"),
        ({"AISP_GPUS": "3"}, "at most 2 GPUs, not 3"),
        ({"AISP_ACCOUNT": "other"}, "does not take account other"),
        ({"AISP_PARTITION": "old"}, "partition old is DOWN"),
        ({"AISP_PARTITION": "mian"}, "no partition is named mian"),
        ({"AISP_PARTITION": "old,main", "AISP_ACCOUNT": "lab", "AISP_GPUS": "2"}, None),
    ],
)
def test_limits_of_the_partition_are_checked(commands: Path, environ: dict[str, str], says: str | None) -> None:
    put(commands, "scontrol", f"#!/bin/sh\nprintf '{PARTITIONS}'\n".replace("\n'", "\\n'"))
    put(commands, "sinfo", "#!/bin/sh\nprintf 'gpu:h200:2(S:0-1)\\n(null)\\n'\n")
    resources = placement(environ, 60, exclusive=False)
    if says is None:
        check_limits(resources)
        return
    with pytest.raises(UsageError, match=says) as error:
        check_limits(resources)
    assert error.value.code == "BEYOND_PARTITION"


def test_gpus_of_a_node_are_counted_over_types() -> None:
    assert [gpus_of(text) for text in ("gpu:h200:2(S:0-1),gpu:a100:4,nvme:1", "gpu", "(null)")] == [6, 1, 0]


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("sbatch: error: Batch job submission failed: Invalid account", "SLURM_REFUSED"),
        ("sbatch: error: Unable to contact slurm controller", "NO_SLURM"),
        (None, "NO_SLURM"),
    ],
)
def test_an_array_is_refused_once(
    jobs: Jobs, commands: Path, monkeypatch: pytest.MonkeyPatch, said: str | None, code: str
) -> None:
    if said is None:
        (commands / "sbatch").unlink()
        monkeypatch.setenv("PATH", str(commands))
    else:
        put(commands, "sbatch", f"#!/bin/sh\necho '{said}' >&2\nexit 1\n")
    with pytest.raises(AispError) as caught:
        jobs.submit_array("aisp_test_work", [({}, {})] * 3, resources=(), timeout_s=60)
    assert caught.value.code == code
    assert "Nothing was submitted" in caught.value.message
    assert jobs.store.list_jobs()[0] == []
    assert not list(jobs.store.home.glob("*.sbatch"))
