"""Durability of the store: what is written stays, damage is named, costs do not grow with what is stored."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from pathlib import Path

import pytest

from aisp_mcp.envelope import Envelope, Meta, Progress, Status
from aisp_mcp.errors import AispError, NotFound, StoreError
from aisp_mcp.store import connection
from aisp_mcp.store.database import Store
from aisp_mcp.store.files import write_atomic
from aisp_mcp.store.records.job import Job, JobState
from aisp_mcp.store.records.run import Run
from aisp_mcp.store.schema import VERSION


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "home")


def insert(
    store: Store, number: int, tool: str = "aisp_x", resources: tuple[str, ...] = (), principal: str = "local"
) -> Job:
    job = Job(
        id=f"j_{number}",
        tool=tool,
        params={"n": number},
        state=JobState.QUEUED,
        resources=resources,
        timeout_s=5,
        created_at=time.time(),
        principal=principal,
        run_dir=str(store.run_dir(f"j_{number}")),
    )
    store.insert_job(job, python="python", cwd="/", env={"A": "b"})
    return job


def add(
    store: Store, number: int, tool: str = "aisp_x", resources: tuple[str, ...] = (), principal: str = "local"
) -> Job:
    return store.job(insert(store, number, tool, resources, principal).id)


def answer(result: object) -> Envelope:
    return Envelope(tool="aisp_x", status=Status.OK, result=result, meta=Meta(duration_ms=1, version="0", at="now"))


def end(store: Store, job_id: str, state: JobState = JobState.SUCCEEDED) -> None:
    assert store.queue.claim(job_id, 99, {"pid": 1, "pid_start": 1, "namespace": "x"})
    store.finish(job_id, answer({"big": "x" * 1000}))
    store.queue.end(job_id, state, exit_code=0)


def test_a_job_goes_its_way(store: Store) -> None:
    assert add(store, 1).position == 0
    store.transition("j_1", JobState.RUNNING, started_at=1.0)
    store.set_progress("j_1", Progress(done=1, total=2, message="half"))
    store.finish("j_1", answer(7))
    running = store.job("j_1")
    assert running.progress == Progress(done=1, total=2, message="half")
    assert running.envelope is None  # not before the whole tree has ended
    ended = store.transition("j_1", JobState.SUCCEEDED, ended_at=2.0)
    assert Envelope.model_validate(ended.envelope).result == 7
    with pytest.raises(AispError) as caught:
        store.transition("j_1", JobState.RUNNING)
    assert caught.value.code == "JOB_TRANSITION"
    assert store.job("j_1").state is JobState.SUCCEEDED


def test_an_ended_job_takes_no_more_answers(store: Store) -> None:
    add(store, 1)
    end(store, "j_1")
    store.finish("j_1", answer("late"))
    store.set_progress("j_1", Progress(done=9))
    assert store.job("j_1").envelope == answer({"big": "x" * 1000}).model_dump(mode="json", exclude_none=True)
    assert store.job("j_1").progress is None


def test_unknown_ids_and_paths(store: Store) -> None:
    for call in (store.job, lambda x: store.jobs([x])):
        with pytest.raises(NotFound) as caught:
            call("nope")
        assert caught.value.code == "UNKNOWN_JOB"
        assert caught.value.next_steps[0][0] == "aisp_job_list"
    for bad in ("nope", "../../etc", "a/b", "", ".", "..", "x" * 500):
        with pytest.raises(NotFound):
            store.run(Run, bad)
    for bad in ("../../etc", "a/b", "", ".", "..", "x" * 500):
        with pytest.raises(NotFound):
            store.run_dir(bad)


def test_pages_are_newest_first_and_complete(store: Store) -> None:
    for i in range(7):
        add(store, i, tool="aisp_a" if i % 2 else "aisp_b", principal="bob" if i == 6 else "local")
    end(store, "j_1")
    first, cursor = store.list_jobs(limit=4, principal="local")
    assert cursor is not None
    second, none = store.list_jobs(limit=4, cursor=cursor, principal="local")
    assert [job.id for job in first + second] == ["j_5", "j_4", "j_3", "j_2", "j_1", "j_0"]
    assert none is None
    assert [job.id for job in store.list_jobs(tool="aisp_a")[0]] == ["j_5", "j_3", "j_1"]
    assert [job.id for job in store.list_jobs(state=JobState.SUCCEEDED)[0]] == ["j_1"]
    assert [job.id for job in store.list_jobs(state=JobState.QUEUED, tool="aisp_a")[0]] == ["j_5", "j_3"]
    assert [job.id for job in store.list_jobs(principal="bob")[0]] == ["j_6"]
    assert [job.id for job in store.list_jobs(tool="aisp_b")[0]] == ["j_6", "j_4", "j_2", "j_0"]


def test_no_common_question_reads_the_whole_table(store: Store) -> None:
    requests: list[str] = []
    store.db._connection.set_trace_callback(requests.append)
    store.list_jobs()
    store.list_jobs(cursor=5)
    store.list_jobs(state=JobState.LOST)
    store.list_jobs(tool="aisp_x")
    store.list_jobs(tool="aisp_x", state=JobState.LOST, cursor=9)
    store.list_jobs(principal="bob")
    store.list_jobs(principal="bob", state=JobState.LOST)
    store.list_jobs(principal="bob", tool="aisp_x", state=JobState.LOST, cursor=9)
    store.run_ids()
    store.run_ids(principal="bob")
    store.queue.owned()
    store.count_queued("bob")
    store.queue.row("j_1")
    store.list_runs(Run)
    store.best_measurement("copy", "cpu")
    store.db._connection.set_trace_callback(None)
    assert len(requests) == 15
    for sql in requests:
        plan = [row["detail"] for row in store.db.all(f"EXPLAIN QUERY PLAN {sql}")]
        steps = [line for line in plan if not line.startswith("CORRELATED")]  # a heading
        assert all("INDEX" in line or "PRIMARY KEY" in line for line in steps), (sql, plan)
        assert not any("TEMP B-TREE" in line for line in plan), (sql, plan)


def test_a_resource_is_held_in_order(store: Store) -> None:
    owner = {"pid": 1, "pid_start": 1, "namespace": "x"}
    add(store, 1, resources=("gpu:a",))
    add(store, 2, resources=("gpu:a", "gpu:b"))
    add(store, 3, resources=("gpu:b",))
    add(store, 4, resources=("cpu",))
    assert [job.position for job in store.jobs(["j_1", "j_2", "j_3", "j_4"])] == [0, 1, 1, 0]
    assert store.queue.claim("j_2", 4, owner) is None
    assert store.queue.claim("j_3", 4, owner) is None  # j_2 came first
    assert store.queue.claim("j_1", 4, owner) is not None
    assert store.queue.claim("j_1", 4, owner) is None  # nobody gets it twice
    assert store.queue.claim("j_4", 4, owner) is not None
    assert [row["id"] for row in store.queue.take_spawns(4)] == []
    store.queue.end("j_1", JobState.SUCCEEDED)
    assert [row["id"] for row in store.queue.take_spawns(4)] == ["j_2"]
    assert [row["id"] for row in store.queue.take_spawns(4)] == []  # somebody is at it


def test_threads_share_a_store(store: Store) -> None:
    failures: list[BaseException] = []

    def work(first: int) -> None:
        try:
            for i in range(first, first + 20):
                add(store, i)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n * 100,)) for n in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(store.list_jobs(limit=200)[0]) == 100


def half_a_change(store: Store) -> None:
    with store.db.transaction():
        store.db.change("UPDATE jobs SET tool = 'y'")
        store.db.change("UPDATE jobs SET no_such_column = 1")


def test_a_transaction_happens_whole_or_not_at_all(store: Store) -> None:
    add(store, 1)
    with pytest.raises(StoreError):
        half_a_change(store)
    assert store.job("j_1").tool == "aisp_x"


def test_a_newer_store_is_left_alone(tmp_path: Path) -> None:
    Store(tmp_path).close()
    with sqlite3.connect(tmp_path / "aisp.db") as raw:
        raw.execute(f"PRAGMA user_version = {VERSION + 1}")
    raw.close()
    with pytest.raises(StoreError) as caught:
        Store(tmp_path)
    assert caught.value.code == "STORE_NEWER"


def test_a_store_of_the_first_version_is_brought_up_to_date(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as old:
        old.setattr("aisp_mcp.store.schema.VERSION", 1)
        with Store(tmp_path) as store:
            insert(store, 1)
    with Store(tmp_path) as store:
        assert store.db.all("PRAGMA user_version")[0][0] == VERSION > 1
        assert [row["id"] for row in store.queue.take_spawns(4)] == ["j_1"]


def test_not_a_database(tmp_path: Path) -> None:
    (tmp_path / "aisp.db").write_bytes(b"this is a letter, not a database" * 100)
    with pytest.raises(StoreError) as caught:
        Store(tmp_path)
    assert caught.value.code == "STORE_CORRUPT"


def test_a_home_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "aisp.db").mkdir()
    with pytest.raises(StoreError) as caught:
        Store(tmp_path)
    assert caught.value.code == "STORE_UNWRITABLE"


def test_a_store_held_by_somebody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = Store(tmp_path)
    other = connection.Database(tmp_path, busy_s=0.05)
    with first.db.transaction(), pytest.raises(StoreError) as caught:
        other.change("DELETE FROM jobs")
    assert caught.value.code == "STORE_BUSY"


def test_damaged_text_in_a_row_is_not_passed_on(store: Store) -> None:
    add(store, 1)
    store.db.change("UPDATE jobs SET params = CAST(x'fffe' AS TEXT)")
    with pytest.raises(StoreError) as caught:
        store.job("j_1")
    assert caught.value.code == "STORE_CORRUPT"


def test_runs_are_kept_twice_and_replaced_by_id(store: Store) -> None:
    for i in range(3):
        store.save_run(
            Run(id=f"r{i}", created_at=float(i), preset="quick", profile="strict", environment={"n": i}), None
        )
    again = Run(id="r0", created_at=0.0, preset="default", profile="strict", environment={})
    store.save_run(again, "j_1")
    assert store.run(Run, "r0") == again
    assert Run.model_validate_json((store.run_dir("r0") / "run.json").read_text()) == again
    page, cursor = store.list_runs(Run, limit=2)
    assert [run.id for run in page + store.list_runs(Run, cursor=cursor)[0]] == ["r2", "r1", "r0"]


def test_a_run_is_seen_by_whom_its_job_belongs_to(store: Store) -> None:
    add(store, 1, principal="bob")
    for run_id, job_id in (("j_1", "j_1"), ("mine", None)):
        run = Run(id=run_id, created_at=0.0, preset="default", profile="strict", environment={})
        store.save_run(run, job_id)
    assert store.run(Run, "j_1").id == store.run(Run, "j_1", "bob").id == "j_1"
    assert (store.run_ids(), store.run_ids(principal="bob")) == (["mine", "j_1"], ["j_1"])
    for run_id, principal in (("j_1", "eve"), ("mine", "bob")):
        with pytest.raises(NotFound) as caught:
            store.run(Run, run_id, principal)
        assert caught.value.code == "UNKNOWN_RUN"


def test_a_principal_cleans_its_own_jobs_only(store: Store) -> None:
    for number, principal in ((1, "bob"), (2, "eve")):
        add(store, number, principal=principal)
        end(store, f"j_{number}")
    assert store.clean(keep_days=0, keep_mb=0, dry_run=False, principal="bob").jobs == 1
    assert [job.id for job in store.list_jobs()[0]] == ["j_2"]


def test_the_best_measurement(store: Store) -> None:
    assert store.best_measurement("copy", "cpu") is None
    for value in (3.0, 9.0, 4.0):
        store.put_measurement("copy", "cpu", value, "GB/s", {"size": value})
    store.put_measurement("copy", "gpu:a", 99.0, "GB/s", {})
    best = store.best_measurement("copy", "cpu")
    assert best is not None
    assert (best.value, best.unit, best.detail) == (9.0, "GB/s", {"size": 9.0})


def test_clean_removes_old_and_large_but_never_active(store: Store) -> None:
    for i in range(5):
        add(store, i)
        folder = store.run_dir(f"j_{i}")
        folder.mkdir(parents=True)
        (folder / "artifact").write_bytes(b"x" * 1_000_000)
    for i in range(4):
        end(store, f"j_{i}")
        store.db.change("UPDATE jobs SET ended_at = ? WHERE id = ?", time.time() - (10 - i) * 86_400, f"j_{i}")
    would = store.clean(keep_days=9.5, keep_mb=1e6, dry_run=True)
    assert (would.jobs, would.kept_jobs) == (1, 3)
    assert store.run_dir("j_0").exists()
    done = store.clean(keep_days=100, keep_mb=2.1, dry_run=False)
    assert (done.jobs, done.kept_jobs) == (2, 2)
    assert [job.id for job in store.list_jobs()[0]] == ["j_4", "j_3", "j_2"]
    assert [store.run_dir(f"j_{i}").exists() for i in range(5)] == [False, False, True, True, True]


def test_atomic_write_leaves_the_old_file_when_it_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_atomic(path, "old")

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", refuse)
    with pytest.raises(StoreError) as caught:
        write_atomic(path, "new")
    assert caught.value.code == "STORE_FULL"
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("file", "old")]


def queued(store: Store, count: int, resources: tuple[str, ...]) -> None:
    with store.db.transaction():
        for number in range(count):
            insert(store, number, resources=resources)


def test_places_in_the_queue_are_those_of_a_plain_count(store: Store) -> None:
    """Against the definition: active jobs before it that share a resource, or queued ones that have none either."""
    kinds: list[tuple[str, ...]] = [(), ("a",), ("b",), ("a", "b"), (), ("b", "c"), ("c",), ("a",)]
    for number in range(40):
        add(store, number, resources=kinds[number % len(kinds)])
    for number in (0, 1, 2, 8):
        store.transition(f"j_{number}", JobState.RUNNING)
    store.transition("j_9", JobState.CANCELLED)
    jobs = [store.job(f"j_{number}") for number in range(40)]
    active = [job for job in jobs if not job.state.terminal]
    for job in active:
        before = active[: active.index(job)]
        shared = [one for one in before if set(one.resources) & set(job.resources)]
        places = [job for job in before if job.state is JobState.QUEUED and not job.resources]
        expected = len(shared if job.resources else places) if job.state is JobState.QUEUED else None
        assert job.position == expected
    assert store.queue.startable(2) == []
    assert store.queue.startable(4) == ["j_4", "j_12"]
    store.db.change("DELETE FROM jobs WHERE id IN ('j_1', 'j_2')")
    assert store.queue.startable(2) == ["j_3"]


def test_a_long_queue_makes_calls_no_slower_than_its_length(store: Store) -> None:
    """Sixteen times as many jobs: a cost that grows with the square would be 256 times as high."""

    def cost_s() -> float:
        results = []
        for _ in range(5):
            began = time.process_time()
            store.list_jobs(limit=100)
            store.queue.take_spawns(4)
            results.append(time.process_time() - began)
        return min(results)

    queued(store, 100, ("cpu",))
    short = cost_s()
    store.db.change("DELETE FROM jobs")
    queued(store, 1600, ("cpu",))
    assert cost_s() < 16 * short


def test_environments_of_an_older_store_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as old:
        old.setattr("aisp_mcp.store.schema.VERSION", 3)
        with Store(tmp_path) as store:
            for number in range(50):
                insert(store, number)
            env = json.dumps({"PATH": "/bin", "DATABASE_URL": "planted-secret"})
            store.db.change("UPDATE jobs SET env = ?", env)
            store.db.change("UPDATE jobs SET env = NULL, state = 'cancelled' WHERE seq > 20")
    assert b"planted-secret" in (tmp_path / "aisp.db").read_bytes()
    with Store(tmp_path) as store:
        row = store.queue.row("j_1")
        assert row is not None
        assert json.loads(row["env"]) == {"PATH": "/bin"}
        assert store.job("j_19").position == 19
        for path in tmp_path.iterdir():
            assert b"planted-secret" not in path.read_bytes(), path.name
