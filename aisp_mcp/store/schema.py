"""The tables, as numbered migrations. A migration that has shipped is never edited; a new one is appended."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from aisp_mcp.errors import StoreError

_JOBS = """
CREATE TABLE jobs (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    tool TEXT NOT NULL,
    params TEXT NOT NULL,
    principal TEXT NOT NULL,
    state TEXT NOT NULL,
    resources TEXT NOT NULL,
    timeout_s REAL NOT NULL,
    run_dir TEXT NOT NULL,
    created_at REAL NOT NULL,
    started_at REAL,
    ended_at REAL,
    progress TEXT,
    exit_code INTEGER,
    reason TEXT,
    envelope TEXT,
    -- how to start it: interpreter, folder, environment (dropped at the end) of whoever asked
    python TEXT NOT NULL,
    cwd TEXT NOT NULL,
    env TEXT,
    spawned_at REAL,
    -- who watches it: a pid means something only in its namespace and together with its start time
    pid INTEGER,
    pid_start INTEGER,
    namespace TEXT,
    cancel INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX jobs_active ON jobs (seq) WHERE state IN ('queued', 'running');
CREATE INDEX jobs_principal ON jobs (principal, seq);
CREATE INDEX jobs_state ON jobs (principal, state, seq);
CREATE INDEX jobs_tool ON jobs (principal, tool, seq);
CREATE INDEX jobs_tool_state ON jobs (principal, tool, state, seq);
CREATE INDEX jobs_ended ON jobs (ended_at) WHERE ended_at IS NOT NULL;
"""

_RUNS = """
CREATE TABLE runs (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    job_id TEXT,
    created_at REAL NOT NULL,
    body TEXT NOT NULL
);
"""

_MEASUREMENTS = """
CREATE TABLE measurements (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    kind TEXT NOT NULL,
    device TEXT NOT NULL,
    value REAL NOT NULL,
    unit TEXT NOT NULL,
    detail TEXT NOT NULL,
    created_at REAL NOT NULL
);
CREATE INDEX measurements_best ON measurements (kind, device, value);
"""

_COUNT_SPAWNS = "ALTER TABLE jobs ADD COLUMN spawns INTEGER NOT NULL DEFAULT 0"

# The user of the machine lists everybody's jobs; a principal of the HTTP server only its own.
_EVERYBODYS_JOBS = """
CREATE INDEX jobs_all_state ON jobs (state, seq);
CREATE INDEX jobs_all_tool ON jobs (tool, seq);
CREATE INDEX jobs_all_tool_state ON jobs (tool, state, seq);
"""

# A verdict of a run as a row, written by triggers so that a run and its rows cannot differ. Column, type, and the JSON
# paths it is read from: the first that exists.
_OF_RUN = (
    ("preset", "TEXT", "$.preset"),
    ("device", "TEXT", "$.environment.gpus[0].name", "$.environment.host.cpu"),
)
_OF_COMPARISON = (
    ("verdict", "TEXT", "$.verdict"),
    ("goal", "TEXT", "$.goal"),
    ("ratio", "REAL", "$.ratio"),
    ("low", "REAL", "$.interval.low"),
    ("high", "REAL", "$.interval.high"),
    ("noise_floor", "REAL", "$.noise_floor"),
    ("baseline_s", "REAL", "$.baseline.time_s"),
    ("candidate_s", "REAL", "$.optimized.time_s"),
    ("baseline_bytes", "INTEGER", "$.baseline.memory.device_peak_allocated", "$.baseline.memory.host_peak_rss"),
    ("candidate_bytes", "INTEGER", "$.optimized.memory.device_peak_allocated", "$.optimized.memory.host_peak_rss"),
    ("flops_per_s", "REAL", "$.optimized.flops_per_s"),
    ("bytes_per_s", "REAL", "$.optimized.bytes_per_s"),
    ("seconds", "REAL", "$.seconds"),
)


def _first(document: str, paths: Sequence[str]) -> str:
    """SQL for the first of the paths that exists."""
    values = ", ".join(f"json_extract({document}, '{path}')" for path in paths)
    return f"coalesce({values}, NULL)"


# Added by a later migration: before it no run named a commit.
_OF_COMMIT = (
    ("revision", "TEXT", "$.environment.commit.id"),
    ("revision_at", "REAL", "$.environment.commit.at"),
    ("modified", "INTEGER", "$.environment.commit.modified"),
)

_COLUMNS = ["run_id", "created_at", "chapter", "target", *(name for name, *_ in _OF_RUN + _OF_COMPARISON)]
_VALUES = [
    "new.id",
    "new.created_at",
    "substr(t, 1, instr(t || ':', ':') - 1)",
    "iif(v = '', t, t || '_' || v)",
    *(_first("new.body", paths) for _, _, *paths in _OF_RUN),
    *(_first("c", paths) for _, _, *paths in _OF_COMPARISON),
]


def _triggers(columns: Sequence[str], values: Sequence[str], of: str = "1") -> str:
    """Triggers that write the rows of a run. of: the condition on its comparisons."""
    add = f"""
INSERT INTO rulings ({", ".join(columns)}) SELECT {", ".join(values)}
FROM (SELECT value AS c, json_extract(value, '$.target') AS t, coalesce(json_extract(value, '$.candidate'), '') AS v
    FROM json_each(new.body, '$.comparisons')) WHERE {of};
"""
    return f"""
CREATE TRIGGER runs_added AFTER INSERT ON runs BEGIN {add} END;
CREATE TRIGGER runs_changed AFTER UPDATE OF body ON runs BEGIN
    DELETE FROM rulings WHERE run_id = old.id;
    {add}
END;
"""


_RULINGS = f"""
CREATE TABLE rulings (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    run_id TEXT NOT NULL,
    created_at REAL NOT NULL,
    chapter TEXT NOT NULL,
    target TEXT NOT NULL,
    {", ".join(f"{name} {kind}" for name, kind, *_ in _OF_RUN + _OF_COMPARISON)}
);
CREATE INDEX rulings_run ON rulings (run_id);
CREATE INDEX rulings_target ON rulings (target, seq);
CREATE INDEX rulings_chapter ON rulings (chapter, seq);
CREATE INDEX rulings_verdict ON rulings (verdict, seq);
{_triggers(_COLUMNS, _VALUES)}
CREATE TRIGGER runs_removed AFTER DELETE ON runs BEGIN
    DELETE FROM rulings WHERE run_id = old.id;
END;
UPDATE runs SET body = body;
"""

# The environments that earlier versions stored contained secrets: waiting jobs keep only the variables that say where
# and how they run. A job's other variables come from the process that starts it.
_FORGET_ENVIRONMENTS = """
UPDATE jobs SET env = (
    SELECT json_group_object(key, value) FROM json_each(jobs.env)
    WHERE key IN ('PATH', 'HOME', 'LANG', 'TMPDIR', 'PYTHONPATH', 'VIRTUAL_ENV', 'LD_LIBRARY_PATH', 'AISP_HOME',
        'AISP_BENCH_ROOT', 'AISP_ISOLATION', 'AISP_TOOL_MODULES', 'CUDA_VISIBLE_DEVICES', 'CUDA_HOME')
) WHERE env IS NOT NULL;
"""

# One row per resource of each active job, so that its position in the queue is counted in an index. The resource ''
# stands for the shared slots; a job has it only while it is queued.
_CLAIMS = """
CREATE TABLE claims (resource TEXT NOT NULL, seq INTEGER NOT NULL, PRIMARY KEY (resource, seq)) WITHOUT ROWID;
CREATE INDEX claims_seq ON claims (seq);
CREATE TRIGGER jobs_added AFTER INSERT ON jobs WHEN new.state IN ('queued', 'running') BEGIN
    INSERT INTO claims SELECT DISTINCT value, new.seq FROM json_each(new.resources);
    INSERT INTO claims SELECT '', new.seq WHERE new.resources = '[]' AND new.state = 'queued';
END;
CREATE TRIGGER jobs_moved AFTER UPDATE OF state ON jobs BEGIN
    DELETE FROM claims WHERE seq = new.seq AND (new.state NOT IN ('queued', 'running') OR resource = '');
END;
CREATE TRIGGER jobs_removed AFTER DELETE ON jobs BEGIN
    DELETE FROM claims WHERE seq = old.seq;
END;
INSERT INTO claims SELECT DISTINCT value, seq FROM jobs, json_each(resources) WHERE state IN ('queued', 'running');
INSERT INTO claims SELECT '', seq FROM jobs WHERE state = 'queued' AND resources = '[]';
"""

# Owners of the runs, without reading their bodies.
_RUNS_BY_JOB = "CREATE INDEX runs_job ON runs (job_id, id)"

# executor: what runs the job. placement: the request to a cluster, as JSON. handle: the cluster's id, once known.
_EXECUTORS = """
ALTER TABLE jobs ADD COLUMN executor TEXT NOT NULL DEFAULT 'local';
ALTER TABLE jobs ADD COLUMN placement TEXT;
ALTER TABLE jobs ADD COLUMN handle TEXT;
"""

_COMMITS = f"""
{"".join(f"ALTER TABLE rulings ADD COLUMN {name} {kind};{chr(10)}" for name, kind, _ in _OF_COMMIT)}
DROP TRIGGER runs_added;
DROP TRIGGER runs_changed;
{
    _triggers(
        [*_COLUMNS, *(name for name, *_ in _OF_COMMIT)],
        [*_VALUES, *(_first("new.body", paths) for _, _, *paths in _OF_COMMIT)],
    )
}
"""

# Result files of other tools. An owner's import of the same bytes has the same id, and replaces the earlier one.
_IMPORTS = """
CREATE TABLE imports (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL,
    principal TEXT NOT NULL,
    imported_at REAL NOT NULL,
    body TEXT NOT NULL,
    UNIQUE (id, principal)
);
"""

# A run stored before kinds were gets the one that its job and its document show.
_FORMER_KIND = """CASE
    WHEN json_type(body, '$.environment.commits') = 'object' THEN 'gate'
    WHEN json_extract(body, '$.comparisons[0].log_path') LIKE '%/look-%' THEN 'gate'
    WHEN (SELECT tool FROM jobs WHERE jobs.id = job_id) = 'aisp_benchmark_gate' THEN 'gate'
    WHEN (SELECT tool FROM jobs WHERE jobs.id = job_id) LIKE 'aisp_optimize%' THEN 'optimize'
    WHEN json_extract(body, '$.comparisons[0].candidate') GLOB 'o_????????????_[0-9]*' THEN 'optimize'
    WHEN json_extract(body, '$.comparisons[0].disclosed.inputs') IS NOT NULL THEN 'functions'
    WHEN (SELECT tool FROM jobs WHERE jobs.id = job_id) = 'aisp_verify_candidate' THEN 'verify'
    ELSE 'bench' END"""
_BOUND = """coalesce(json_extract(c, '$.clocks.used') IN ('parent', 'lower_bound', 'proven')
    AND coalesce(json_extract(c, '$.clocks.ratio_worker'), json_extract(c, '$.clocks.ratio_shim'))
        > 1.02 * json_extract(c, '$.ratio'), 0)"""
_OF_KIND = (
    ("kind", "TEXT NOT NULL DEFAULT 'bench'", "coalesce(json_extract(new.body, '$.kind'), 'bench')"),
    ("benchmark", "TEXT NOT NULL DEFAULT ''", "t"),
    ("replicates", "INTEGER", _first("c", ["$.replicates"])),
    ("at_least", "INTEGER NOT NULL DEFAULT 0", _BOUND),
    ("of_peak", "REAL", _first("c", ["$.peak.share"])),
    ("base_revision", "TEXT", _first("new.body", ["$.environment.commits.base"])),
)
_HEAD = "$.environment.commits.head"  # of a gate, whose files are in no repository
_KINDS = f"""
{"".join(f"ALTER TABLE rulings ADD COLUMN {name} {kind};{chr(10)}" for name, kind, _ in _OF_KIND)}
DROP TRIGGER runs_added;
DROP TRIGGER runs_changed;
{
    _triggers(
        [*_COLUMNS, *(name for name, *_ in _OF_COMMIT), *(name for name, *_ in _OF_KIND)],
        [
            *_VALUES,
            _first("new.body", ["$.environment.commit.id", _HEAD]),
            *(_first("new.body", paths) for _, _, *paths in _OF_COMMIT[1:]),
            *(value for _, _, value in _OF_KIND),
        ],
    )
}
UPDATE runs SET body = json_set(body, '$.kind', {_FORMER_KIND}) WHERE json_extract(body, '$.kind') IS NULL;
CREATE INDEX rulings_kind ON rulings (kind, seq);
CREATE INDEX rulings_target_kind ON rulings (target, kind, seq);
"""

# The name of a target of functions ends with a digest of its content, by which rows are one history whatever the
# function's file is called; its first name stays.
_DIGEST = "substr(json_extract(c, '$.disclosed.identity'), instr(json_extract(c, '$.disclosed.identity'), '@'))"
_BENCHMARK = f"""coalesce(
    (SELECT benchmark FROM rulings WHERE identity = {_DIGEST} ORDER BY seq LIMIT 1),
    json_extract(c, '$.disclosed.identity'), t)"""
# A gate that could not judge proves nothing, whatever its first look shows; further looks were once runs of their own.
_UNDECIDED = "json_extract(c, '$.disclosed.outcome') = 'could_not_judge'"
_OUTCOME = f"iif({_UNDECIDED}, 'inconclusive', json_extract(c, '$.verdict'))"
_NO_LOOK = "coalesce(json_extract(c, '$.log_path'), '') NOT LIKE '%/look-_/%'"
_LATER = (*(name for name, *_ in _OF_COMMIT), *(name for name, *_ in _OF_KIND))
_IDENTITIES = f"""
ALTER TABLE rulings ADD COLUMN identity TEXT;
CREATE INDEX rulings_identity ON rulings (identity, seq) WHERE identity IS NOT NULL;
DROP TRIGGER runs_added;
DROP TRIGGER runs_changed;
{
    _triggers(
        [*_COLUMNS, *_LATER, "identity"],
        [
            *_VALUES[:2],
            f"substr({_BENCHMARK}, 1, instr({_BENCHMARK} || ':', ':') - 1)",
            f"{_BENCHMARK} || iif(v = '', '', '_' || v)",
            *(_OUTCOME if name == "verdict" else value for name, value in zip(_COLUMNS[4:], _VALUES[4:], strict=True)),
            _first("new.body", ["$.environment.commit.id", _HEAD]),
            *(_first("new.body", paths) for _, _, *paths in _OF_COMMIT[1:]),
            *(_BENCHMARK if name == "benchmark" else value for name, _, value in _OF_KIND),
            _DIGEST,
        ],
        _NO_LOOK,
    )
}
UPDATE runs SET body = identified(id, body) WHERE json_extract(body, '$.kind') = 'functions';
UPDATE runs SET body = body;
"""

# Submissions to a judge server. priority: higher ones first. submission: hash of the content; key: the client's own.
# A submission whose worker is lost is given to another one; tries counts how often.
_POOL = """
ALTER TABLE jobs ADD COLUMN priority INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN submission TEXT;
ALTER TABLE jobs ADD COLUMN key TEXT;
ALTER TABLE jobs ADD COLUMN tries INTEGER NOT NULL DEFAULT 0;
CREATE UNIQUE INDEX jobs_submitted ON jobs (principal, key) WHERE key IS NOT NULL;
"""

MIGRATIONS: tuple[str, ...] = (
    _JOBS + _RUNS + _MEASUREMENTS,
    _COUNT_SPAWNS,
    _EVERYBODYS_JOBS,
    _RULINGS,
    _FORGET_ENVIRONMENTS,
    _CLAIMS,
    _RUNS_BY_JOB,
    _EXECUTORS,
    _COMMITS,
    _IMPORTS,
    _KINDS,
    _IDENTITIES,
    _POOL,
)
VERSION = len(MIGRATIONS)
_FORGETS = MIGRATIONS.index(_FORGET_ENVIRONMENTS)


def migrate(connection: sqlite3.Connection, home: Path) -> None:
    """Migrate the file to VERSION, one migration per transaction. home: the folder of the runs' files.

    Raises StoreError STORE_NEWER, and sqlite3.Error.
    """
    first = _version(connection)
    if first < VERSION:
        from aisp_mcp.store import former_functions

        connection.create_function("identified", 2, partial(former_functions.identified, home))
    while (version := _version(connection)) < VERSION:
        connection.execute("BEGIN IMMEDIATE")
        try:
            if _version(connection) == version:  # no other process was faster
                for statement in _statements(MIGRATIONS[version]):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {version + 1}")
            connection.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):  # a full disk has already rolled back
                connection.execute("ROLLBACK")
            raise
    if version > VERSION:
        raise StoreError(
            "STORE_NEWER",
            f"The store has schema {version}; this version knows up to {VERSION}.",
            "Update aisp-mcp, or point AISP_HOME at another folder.",
        )
    if 0 < first <= _FORGETS:
        _wipe(connection)


def _statements(script: str) -> Iterator[str]:
    """The statements of a script, one by one: executescript() would commit the transaction."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
    if statement.strip():
        yield statement


def _wipe(connection: sqlite3.Connection) -> None:
    """Rewrite the file and its log without deleted data."""
    with contextlib.suppress(sqlite3.Error):  # the disk is full or another process reads: opening it matters more
        connection.execute("VACUUM")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])
