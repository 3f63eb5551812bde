"""python -m aisp_mcp.jobs.node FOLDER: run one job on a node of a cluster, from a batch script or in a pod.

The same supervisor as on any machine watches the worker, with its own store on a local disk. Everything that other
processes must see goes into the run folder, which all nodes share.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from aisp_mcp.jobs import supervisor
from aisp_mcp.jobs.executors import handover
from aisp_mcp.jobs.executors.local import MARK
from aisp_mcp.store.cluster import rows_made
from aisp_mcp.store.database import Store
from aisp_mcp.store.records.job import Job, JobState

POD_JOB, POD_NODE = "AISP_POD_JOB", "AISP_POD_NODE"  # in a pod: the Job's name, and the node
_SHARED = ("runs", "models", "profiles", "tools")  # folders of AISP_HOME on the shared file system


def main() -> int:
    """Run the job to its end: 0 for success, 1 for everything else."""
    folder, handle = _location(Path(sys.argv[1]))
    request = handover.read(folder, handover.REQUEST)
    if request is None:
        print(f"{folder / handover.REQUEST} cannot be read on this node", file=sys.stderr)
        return 1
    if not handover.take_claim(folder, handle):
        print(f"job {request['id']} runs or ran as another submission; this one does nothing")
        return 0
    # left by an attempt before a requeue
    for name in (handover.EXIT, handover.ROWS, handover.PROGRESS, "envelope.json"):
        (folder / name).unlink(missing_ok=True)
    home = Path(tempfile.mkdtemp(prefix="aisp-node-"))
    try:
        return _run(folder, home, request)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _location(folder: Path) -> tuple[Path, str]:
    """Run folder and the cluster's id of this job, or of this task of an array."""
    task = os.environ.get("SLURM_ARRAY_TASK_ID")
    if task is None:
        return folder, os.environ.get(POD_JOB) or os.environ["SLURM_JOB_ID"]
    folders = handover.read(folder, handover.ARRAY) or {}
    return Path(folders.get(task, folder)), f"{os.environ['SLURM_ARRAY_JOB_ID']}_{task}"


def _run(folder: Path, home: Path, request: dict[str, Any]) -> int:
    for name in _SHARED:
        shared = folder.parent.parent / name
        shared.mkdir(mode=0o700, exist_ok=True)
        (home / name).symlink_to(shared)
    nodes = os.environ.get("SLURM_JOB_NUM_NODES", "1")
    os.environ.update({"AISP_HOME": str(home), MARK: request["id"], "AISP_EXECUTOR": "local", "AISP_NODES": nodes})
    began = time.time()
    with Store(home) as store:
        _enter(store, folder, request, began)
        supervisor.supervise(request["id"], home, slots=1)
        row = store.queue.row(request["id"])
        assert row is not None
        handover.write(folder, handover.ROWS, rows_made(store.db))
        left = {name: row[name] for name in ("state", "exit_code", "reason", "started_at", "ended_at")}
        handover.write(
            folder, handover.EXIT, {**left, "node": os.environ.get(POD_NODE) or os.environ.get("SLURMD_NODENAME")}
        )
    return int(left["state"] != JobState.SUCCEEDED)


def _enter(store: Store, folder: Path, request: dict[str, Any], began: float) -> None:
    """Put the job into the node's own store."""
    job = Job(
        id=request["id"],
        tool=request["tool"],
        params=request["params"],
        state=JobState.QUEUED,
        timeout_s=request["timeout_s"],
        created_at=began,
        principal=request["principal"],
        run_dir=str(folder),
    )
    env = {"TMPDIR": os.environ["TMPDIR"]} if "TMPDIR" in os.environ else {}
    with contextlib.suppress(OSError):
        os.chdir("/")
    store.insert_job(job, python=sys.executable, cwd=request["cwd"], env=env, executor="node")


if __name__ == "__main__":
    sys.exit(main())
