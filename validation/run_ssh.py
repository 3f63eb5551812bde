"""Jobs over ssh to an sshd on this machine: cut connections, faults and overhead. Not a test.

    python validation/run_ssh.py [--jobs 100] [--cuts 20] [--drops 2] [--user NAME --python PATH] [--out FILE]

--drops: times that the link of a network namespace goes down, as root. --user: another user of this machine, whose
Python is then needed. Prints one JSON document.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "jobs"), str(Path(__file__).parent)]

import scrub  # noqa: E402
from ssh_host import Host  # noqa: E402

from aisp_mcp.jobs import starting  # noqa: E402
from aisp_mcp.jobs.executors import ssh  # noqa: E402
from aisp_mcp.jobs.manager import Jobs  # noqa: E402
from aisp_mcp.jobs.watcher import Watcher  # noqa: E402
from aisp_mcp.process import tree  # noqa: E402
from aisp_mcp.settings import Settings  # noqa: E402
from aisp_mcp.store.database import Store  # noqa: E402
from aisp_mcp.store.records.job import Job, JobState  # noqa: E402

PATIENCE_S = 300.0
SPACE, LINK, NEAR, FAR = "aisp-there", "aisp-link", "10.231.7.1", "10.231.7.2"


def main() -> int:
    """Return 0 if no job was lost or ran twice."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=100)
    parser.add_argument("--cuts", type=int, default=20)
    parser.add_argument("--drops", type=int, default=0)
    parser.add_argument("--user")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--out")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="aisp-ssh-") as folder, _host(Path(folder), options) as host:
        Path(folder).chmod(0o755)
        os.environ.update(
            AISP_HOME=f"{folder}/home",
            AISP_TOOL_MODULES="job_tools",
            PYTHONPATH=os.pathsep.join([str(ROOT / "tests" / "jobs"), str(ROOT)]),
            PATH=f"{folder}/ssh/bin{os.pathsep}{os.environ['PATH']}",
            AISP_REMOTE_PYTHON=options.python,
        )
        os.environ.pop("AISP_EXECUTOR", None)
        with Store(Path(folder) / "home") as store:
            jobs = Jobs(store, Settings.from_env())
            try:
                record = {
                    "overhead": overhead(jobs, host),
                    "cuts": cuts(jobs, host, options, Path(folder)),
                    "phases": phases(jobs, host, Path(folder)),
                    "faults": faults(jobs, host),
                }
            finally:
                end_watcher(jobs, host)
    text = json.dumps(scrub.scrub(record) if hasattr(scrub, "scrub") else record, indent=1)
    if options.out:
        Path(options.out).write_text(text + "\n")
    print(text)
    wrong = [record["cuts"][name] for name in ("lost", "ran_twice", "wrong")]
    return int(sum(wrong) + len(record["phases"]["failed"]) > 0)


@contextlib.contextmanager
def _host(folder: Path, options: argparse.Namespace) -> Iterator[Host]:
    """The sshd, behind a link of a namespace if that is to go down."""
    prefix: tuple[str, ...] = ()
    if options.drops:
        for words in (
            f"netns add {SPACE}",
            f"link add {LINK} type veth peer name {LINK}-b netns {SPACE}",
            f"addr add {NEAR}/30 dev {LINK}",
            f"link set {LINK} up",
            f"-n {SPACE} addr add {FAR}/30 dev {LINK}-b",
            f"-n {SPACE} link set {LINK}-b up",
        ):
            subprocess.run(["ip", *words.split()], check=True)
        prefix = ("ip", "netns", "exec", SPACE)
    try:
        host = Host(folder / "ssh", FAR if options.drops else "127.0.0.1", options.user, prefix)
        try:
            host.start()
            yield host
        finally:
            host.stop()
    finally:
        if options.drops:
            subprocess.run(["ip", "netns", "del", SPACE], check=False)


def submit(
    jobs: Jobs, host: Host | None, tool: str = "aisp_test_work", env: dict[str, str] | None = None, **params: Any
) -> str:
    where = {"AISP_EXECUTOR": host.url if host else "local", **(env or {})}
    return jobs.submit(tool, params, timeout_s=120, env=where).id


def finished(jobs: Jobs, job_id: str) -> Job:
    end = time.monotonic() + PATIENCE_S
    while not (job := jobs.get(job_id)).state.terminal and time.monotonic() < end:
        time.sleep(0.01)
    return job


def took(jobs: Jobs, host: Host | None) -> float:
    began = time.monotonic()
    job = finished(jobs, submit(jobs, host))
    assert job.state is JobState.SUCCEEDED, job.reason
    return time.monotonic() - began


def overhead(jobs: Jobs, host: Host, count: int = 15) -> dict[str, Any]:
    """Seconds from the call to the answer, here and there in turn; the first job there brings the package along."""
    first = took(jobs, host)
    here, there = [], []
    for _ in range(count):
        here.append(took(jobs, None))
        there.append(took(jobs, host))
    beyond = [b - a for a, b in zip(here, there, strict=True)]
    end_watcher(jobs, host)
    again = took(jobs, host)
    return {
        "first_s": round(first, 3),
        "new_connection_s": round(again, 3),
        "local_p50_s": round(statistics.median(here), 3),
        "ssh_p50_s": round(statistics.median(there), 3),
        "beyond_p50_s": round(statistics.median(beyond), 3),
        "beyond_max_s": round(max(beyond), 3),
        "pairs": count,
    }


REQUESTS = ("facts", "tree", "lacking", "put", "build", "start", "submit", "poll", "fetch", "forget")


class Killed(BaseException):
    """Ends a watcher as a signal does."""


def phases(jobs: Jobs, host: Host, folder: Path) -> dict[str, Any]:
    """The connection ends, or the watcher, at each request before it is sent, before its answer, and before what
    follows that; each time a job must run once and come back right. This process is the watcher.
    """
    end_watcher(jobs, host)
    signal.signal(starting.WAKE, signal.SIG_IGN)
    lock = starting.watcher_lock(jobs.store.home, host.url)
    lock.write_text(f"{os.getpid()} {tree.start_time(os.getpid())} {tree.namespace()}")
    changing, journal = folder / "phases" / "data", Path(tempfile.mkdtemp(prefix="aisp-", dir="/dev/shm")) / "journal"
    changing.parent.mkdir()
    journal.parent.chmod(0o777)
    left: list[tuple[str, str, str]] = []  # who ends, at which request and point
    call, failed, tried = ssh.Connection.call, list[str](), 0

    def end(connection: ssh.Connection) -> None:
        tree.kill([connection._ssh.pid])
        if left.pop()[0] == "watcher":
            raise Killed

    def ending_call(self: ssh.Connection, op: str, payload: Iterable[bytes] = (), **rest: Any) -> dict[str, Any]:
        point = left[0][2] if left and left[0][1] == op else ""
        if point == "before":
            end(self)
        if point == "sent":
            timeout_s = rest.pop("timeout_s", ssh.ANSWER_S)
            for chunk in (json.dumps({"op": op, **rest}).encode() + b"\n", *payload):
                self._write(chunk, timeout_s)
            time.sleep(0.1)
            end(self)
            return self._answer(timeout_s)
        answer = call(self, op, payload, **rest)
        if point == "answered":
            end(self)
        return answer

    with mock.patch.object(ssh.Connection, "call", ending_call):
        executor = ssh.Ssh(host.url)
        for case in itertools.product(("connection", "watcher"), REQUESTS, ("before", "sent", "answered")):
            if case[1] in ("facts", "start") and executor._connection:
                executor._connection.close()
                executor = ssh.Ssh(host.url)
            changing.write_bytes(os.urandom(3_000_000))
            journal.unlink(missing_ok=True)
            left[:] = [case]
            job_id = submit(jobs, host, journal=str(journal), label="right", seconds=0.2, gate=str(changing))
            watcher = Watcher(jobs.store.db, host.url, executor)
            limit = time.monotonic() + 60
            while (left or not jobs.get(job_id).state.terminal) and time.monotonic() < limit:
                try:
                    watcher.look()
                except Killed:
                    executor = ssh.Ssh(host.url)
                    watcher = Watcher(jobs.store.db, host.url, executor)
                time.sleep(0.05)
            job, tried = jobs.get(job_id), tried + 1
            begun = journal.read_text().count("begin") if journal.exists() else 0
            if left or begun != 1 or job.envelope is None or job.envelope["result"]["text"] != "right":
                failed.append(f"{' '.join(case)}: {job.state.value}, began {begun} times")
        if executor._connection:
            executor._connection.close()
    lock.write_text("")
    shutil.rmtree(journal.parent)
    return {"tried": tried, "failed": failed}


def cuts(jobs: Jobs, host: Host, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Many jobs at once while connections end at random times; every job must run once and come back right."""
    journal = Path(tempfile.mkdtemp(prefix="aisp-", dir="/dev/shm")) / "journal"  # of the system: not sent
    journal.parent.chmod(0o777)
    chance = random.Random(7)
    stop = threading.Event()
    states: Counter[str] = Counter()
    ids: list[str] = []
    began = time.monotonic()

    def cut() -> None:
        drops = options.drops
        for number in range(options.cuts + options.drops):
            if stop.wait(chance.uniform(0.1, 2.0)):
                return
            with Store(jobs.store.home) as store:
                found = [job for job in store.jobs(list(ids)) if not job.state.terminal]
            phase = "running" if any(job.state is JobState.RUNNING for job in found) else "queued" if found else "none"
            if number % 8 != 5 or drops == 0:
                waited = time.monotonic() + 30
                while host.cut() == 0 and time.monotonic() < waited:
                    time.sleep(0.02)
                states[f"cut, {phase}"] += 1
            else:
                subprocess.run(["ip", "link", "set", LINK, "down"], check=True)
                time.sleep(25)
                subprocess.run(["ip", "link", "set", LINK, "up"], check=True)
                states[f"link down for 25 s, {phase}"] += 1
                drops -= 1

    cutter = threading.Thread(target=cut)
    cutter.start()
    changing = folder / "changing" / "data"
    changing.parent.mkdir()
    for number in range(options.jobs):
        if number % 4 == 0:
            changing.write_bytes(os.urandom(8_000_000))  # is sent anew
        about = {"journal": str(journal), "label": f"n{number}", "seconds": 0.05, "gate": str(changing)}
        ids.append(submit(jobs, host, **about))
        if number % 25 == 24:
            watcher = starting.living_watcher(jobs.store.home, host.url)
            if watcher:
                tree.kill([watcher])
                states["watcher killed"] += 1
        time.sleep(1.5)
    ended = [finished(jobs, job_id) for job_id in ids]
    stop.set()
    cutter.join()
    begun = Counter(line.split()[1] for line in journal.read_text().splitlines() if line.startswith("begin"))
    shutil.rmtree(journal.parent)
    right = [
        job.envelope is not None
        and job.envelope.get("result") is not None
        and job.envelope["result"]["text"] == f"n{number}"
        for number, job in enumerate(ended)
    ]
    end = time.monotonic() + 30
    runs = host.there / ".local" / "aisp"
    while (left := list(runs.glob("host-*/runs/*"))) and time.monotonic() < end:
        time.sleep(0.2)
    return {
        "jobs": len(ids),
        "interruptions": dict(states),
        "succeeded": sum(job.state is JobState.SUCCEEDED for job in ended),
        "lost": sum(not job.state.terminal or job.state is JobState.LOST for job in ended),
        "wrong": right.count(False),
        "ran_twice": sum(count > 1 for count in begun.values()),
        "left_there": len(left),
        "seconds": round(time.monotonic() - began, 1),
        "other_reasons": sorted({job.reason or "" for job in ended if job.state is not JobState.SUCCEEDED}),
    }


def faults(jobs: Jobs, host: Host) -> dict[str, Any]:
    """One sentence for each."""
    found = {}

    def reason(job_id: str) -> str:
        job = finished(jobs, job_id)
        return f"{job.state.value}: {(job.reason or 'ok').replace(host.url, 'ssh://HOST')}"

    end_watcher(jobs, host)
    host.use_key("wrong_key")
    found["wrong key"] = reason(submit(jobs, host))
    end_watcher(jobs, host)
    host.use_key("user_key")
    found["no such Python"] = reason(submit(jobs, host, env={"AISP_REMOTE_PYTHON": "/nowhere/python3"}))
    end_watcher(jobs, host)
    for name, words in (
        ("a Python without packages", "/usr/bin/python3"),
        ("an old Python", None if host.user else _older()),
    ):
        if words:
            found[name] = reason(submit(jobs, host, env={"AISP_REMOTE_PYTHON": words}))
            end_watcher(jobs, host)
    found["a label with a newline"] = reason(submit(jobs, host, label="a\nb"))
    for name, how in (("the worker is killed", "killed"), ("no GPU there", "refuse"), ("the worker exits", "exit7")):
        found[name] = reason(submit(jobs, host, "aisp_test_end", how=how))
    job_id = submit(jobs, host, seconds=60)
    while jobs.get(job_id).state is not JobState.RUNNING:
        time.sleep(0.05)
    time.sleep(1)
    for pid in tree.marked("AISP_JOB_ID", job_id):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    found["its supervisor is killed"] = reason(job_id)
    end_watcher(jobs, host)
    with tempfile.TemporaryDirectory(prefix="aisp-sent-") as sent:
        (gate := Path(sent) / "gate").touch()
        (odd := Path(sent) / "a\nb").touch()
        found["a file whose name has a newline"] = reason(submit(jobs, host, gate=str(gate)))
        with odd.open("wb") as file:
            file.truncate(10**9)
        found["1 GB to send"] = reason(submit(jobs, host, gate=str(gate)))
    end_watcher(jobs, host)
    if os.geteuid() == 0:
        for name, full, size in (("disk", ".cache", "2m"), ("disk of the jobs", ".local", "64k")):
            folder = host.there / full
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            if host.user:
                shutil.chown(folder, host.user)
            there = ["nsenter", "-t", str(host.pid), "-m"]
            words = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=777", "tmpfs", str(folder)]
            subprocess.run([*there, *words], check=True)
            try:
                found[f"full {name} there"] = reason(submit(jobs, host))
                end_watcher(jobs, host)
            finally:
                subprocess.run([*there, "umount", "-l", str(folder)], check=True)
    for name, offset in (("ahead", "+3600s"), ("behind", "-3600s")):
        if not shutil.which("faketime"):
            break
        skewed = host.there / "skewed-python"
        skewed.write_text(f'#!/bin/sh\nexec faketime -f {offset} {os.environ["AISP_REMOTE_PYTHON"]} "$@"\n')
        skewed.chmod(0o755)
        job = finished(jobs, submit(jobs, host, env={"AISP_REMOTE_PYTHON": str(skewed)}))
        late = abs((job.started_at or 0) - time.time())
        said = f"{job.state.value}: {job.reason or 'ok'}; its start is right within {late:.0f} s"
        found[f"a clock an hour {name}"] = said
        end_watcher(jobs, host)
    host.stop()
    found["nobody listens"] = reason(submit(jobs, host))
    return found


def _older() -> str | None:
    """A Python before 3.11 on this machine."""
    found = [
        path for name in ("3.8", "3.9", "3.10") for path in Path.home().glob(f".pyenv/versions/{name}.*/bin/python3")
    ]
    return str(found[0]) if found else None


def end_watcher(jobs: Jobs, host: Host) -> None:
    watcher = starting.living_watcher(jobs.store.home, host.url)
    if watcher:
        tree.kill([watcher])
        while tree.start_time(watcher) is not None:
            jobs.reconcile()
            time.sleep(0.01)


if __name__ == "__main__":
    sys.exit(main())
