"""Make a bundle: a verdict with its evidence as one signed file. Check such a file on any machine."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import aisp_mcp
from aisp_mcp.errors import NotFound, Refused, UsageError
from aisp_mcp.judge.records.verdict import Comparison
from aisp_mcp.optimize import board as boards
from aisp_mcp.optimize import sessions
from aisp_mcp.optimize.bundle import archive, evidence
from aisp_mcp.optimize.records import CANDIDATES, LOG, SPEC, Bundle, BundleReport, Claim
from aisp_mcp.server import files
from aisp_mcp.server.context import Context
from aisp_mcp.store import signing
from aisp_mcp.store.records.run import Run

SUFFIX = ".aisp.tar"
RUN, OPTIMIZATION = "run", evidence.OPTIMIZATION
NOTE = (
    "Each verdict follows from the rounds in the bundle. That they were measured, when, and on which machine is the "
    "word of the owner of this key: measure the candidate in it again with aisp bench verify."
)
INCONSISTENT = (ValueError, KeyError, TypeError, AttributeError, IndexError, ArithmeticError)
Files = dict[str, bytes]


def of_run(ctx: Context, run_id: str, out: str | None) -> Bundle:
    """Bundle a stored run. Raises NotFound UNKNOWN_RUN, Refused NO_EVIDENCE, OUTSIDE_ROOTS, UsageError NO_FOLDER,
    StoreError.
    """
    run = ctx.store.run(Run, run_id, ctx.sees)
    if not run.comparisons:
        message = f"There would be nothing to check: run {run.id} has no verdict."
        raise Refused("NO_EVIDENCE", message, "Give the id of another one; aisp bench runs lists them.")
    default = ctx.store.run_dir(run.id) / f"{run.id}{SUFFIX}"
    return _write(ctx, RUN, _run_files(run), files.destination(out, default, ctx.allow_write))


def of_optimization(ctx: Context, session: str, out: str | None) -> Bundle:
    """Bundle a finished optimisation, with all its runs. Raises as of_run and optimization.evidence."""
    runs, folder = sessions.evidence(ctx, session)
    contents = Files()
    for part in (folder / LOG, folder / SPEC, folder / CANDIDATES):
        for path in [part] if part.is_file() else sorted(part.rglob("*")):
            if path.is_file():
                contents[f"{OPTIMIZATION}/{path.relative_to(folder).as_posix()}"] = path.read_bytes()
    for run_id in runs:
        with suppress(NotFound):  # it was cleaned up
            contents |= _run_files(ctx.store.run(Run, run_id, ctx.sees))
    default = folder / f"{session}{SUFFIX}"
    return _write(ctx, OPTIMIZATION, contents, files.destination(out, default, ctx.allow_write))


def _run_files(run: Run) -> Files:
    """The record, the logs of rounds and the sources of a run, unless they were cleaned up."""
    prefix = f"runs/{run.id}"
    logs = [Path(comparison.log_path) for comparison in run.comparisons if comparison.log_path]
    paths = {path.name: path for path in logs}
    paths |= {name: folder / name for folder in {path.parent for path in logs} for name in run.sources}
    contents = {f"{prefix}/run.json": run.model_dump_json(indent=1).encode()}
    for name, path in paths.items():
        with suppress(OSError):
            contents[f"{prefix}/{name}"] = path.read_bytes()
    return contents


def _write(ctx: Context, kind: str, contents: Files, path: Path) -> Bundle:
    """Sign files that verify() will accept. Raises Refused NO_EVIDENCE for a verdict that does not follow from its
    files.
    """
    try:
        claims, _ = _checked(kind, contents)
    except INCONSISTENT as error:
        message = f"There would be nothing to check: {str(error)[:200]}."
        raise Refused("NO_EVIDENCE", message, "Measure it again, and bundle that run.") from error
    key = signing.private_key(ctx.settings.home)
    public = signing.public_bytes(key)
    missing = evidence.absent(contents)
    facts = {
        "kind": kind,
        "created_at": ctx.clock(),
        "version": aisp_mcp.__version__,
        "machine": _machine(contents),
        "claims": [claim.model_dump(mode="json") for claim in claims],
        "missing": missing,
    }
    written = files.write(path, archive.pack(contents, facts, public, key.sign))
    return Bundle(
        path=written.path,
        bytes=written.bytes,
        files=len(contents),
        fingerprint=signing.fingerprint(public),
        claims=claims,
        missing=missing,
    )


def _checked(kind: str, contents: Mapping[str, bytes]) -> tuple[list[Claim], int]:
    """(claims, number of sound logs) of files whose verdicts all follow from their rounds. Raises INCONSISTENT."""
    chains = evidence.check_runs(contents)
    if kind == OPTIMIZATION:
        chains += evidence.check_optimization(contents)
    return _claims(kind, contents), chains


def verify(path: Path, key: str | None) -> BundleReport:
    """Check a bundle: every byte, the chain of each log, and that everything it shows follows from its rounds.

    key: the required fingerprint, in full. Raises NotFound NO_SUCH_FILE, UsageError BAD_KEY, Refused NO_BUNDLE,
    BUNDLE_ALTERED, OTHER_KEY or BUNDLE_INCONSISTENT.
    """
    expected_key = re.sub(r"[\s:]", "", key).lower() if key is not None else None
    if expected_key is not None and not re.fullmatch(r"[0-9a-f]{64}", expected_key):
        hint = "You saw the key's fingerprint when the bundle was written."
        raise UsageError("BAD_KEY", "A fingerprint has 64 hexadecimal digits.", hint)
    manifest, contents = archive.unpack(_read(path))
    name = signing.fingerprint(bytes.fromhex(manifest["key"]))
    if expected_key not in (None, name):
        raise Refused("OTHER_KEY", f"It was signed by another key, {name}.", "Ask its sender for their fingerprint.")
    try:
        claims, chains = _checked(manifest["kind"], contents)
        if [claim.model_dump(mode="json") for claim in claims] != manifest["claims"]:
            raise ValueError("its claims do not match its records")
        if (manifest["machine"], manifest["missing"]) != (_machine(contents), evidence.absent(contents)):
            raise ValueError("its machine or missing files differ from its records")
        if any(run.created_at > manifest["created_at"] for _, run in evidence.runs(contents)):
            raise ValueError("it is older than its measurements")
        report = BundleReport(
            passed=True,
            fingerprint=name,
            key_expected=expected_key is not None,
            files=len(contents),
            chains=chains,
            claims=claims,
            note=NOTE,
            **{fact: manifest[fact] for fact in ("kind", "created_at", "version", "machine", "missing")},
        )
    except INCONSISTENT as error:
        message = f"It is unchanged since it was signed, but contradicts itself: {str(error)[:200]}."
        raise Refused("BUNDLE_INCONSISTENT", message, "Do not trust it.") from error
    return report


def _read(path: Path) -> bytes:
    if not path.is_file():
        raise NotFound("NO_SUCH_FILE", f"There is no file {path}.", None)
    try:
        with path.open("rb") as file:
            data = file.read(archive.MAX_BYTES + 1)  # the system makes up some files, and gives their size as 0
    except OSError as error:
        raise Refused("NO_BUNDLE", f"{path} cannot be read: {error.strerror}.", None) from error
    if len(data) > archive.MAX_BYTES:
        raise Refused("NO_BUNDLE", f"{path} is larger than {archive.MAX_BYTES >> 20} MiB.", None)
    return data


def _claims(kind: str, contents: Mapping[str, bytes]) -> list[Claim]:
    """The claims that follow from the records: all verdicts of a run, or the best of an optimisation."""
    if kind == RUN:
        ((_, run),) = evidence.runs(contents)
        return [_claim(comparison, run.id) for comparison in run.comparisons]
    if kind != OPTIMIZATION:
        raise ValueError(f"its kind is {kind[:40]!r}")
    _, submissions, _ = sessions.parsed(evidence.optimization_log(contents))
    best = boards.best(submissions)
    return [
        _claim(submission.again, submission.again_run_id or "", True)
        for submission in submissions
        if submission.number == best and submission.again
    ]


def _claim(comparison: Comparison, run_id: str, confirmed: bool | None = None) -> Claim:
    return Claim(
        target=comparison.label,
        verdict=comparison.verdict,
        sentence=comparison.sentence,
        run_id=run_id,
        confirmed=confirmed,
    )


def _machine(contents: Mapping[str, bytes]) -> str:
    """The GPU, else the processor, of the newest run."""
    newest = max((run for _, run in evidence.runs(contents)), key=lambda run: (run.created_at, run.id), default=None)
    if newest is None:
        return "unknown"
    return str((newest.gpus or [{}])[0].get("name") or newest.host.get("cpu") or "unknown")
