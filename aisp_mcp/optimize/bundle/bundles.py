"""A claim with its evidence as one signed file, and the check of such a file on any machine."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import aisp_mcp
from aisp_mcp.errors import NotFound, Refused, UsageError
from aisp_mcp.judge.audit_log import check_text
from aisp_mcp.judge.records.run import Run
from aisp_mcp.judge.records.verdict import Comparison
from aisp_mcp.optimize import board as boards
from aisp_mcp.optimize import sessions
from aisp_mcp.optimize.bundle import archive
from aisp_mcp.optimize.bundle.records import Bundle, BundleReport, Claim
from aisp_mcp.server import files
from aisp_mcp.server.context import Context
from aisp_mcp.store import signing

SUFFIX = ".aisp.tar"
RUN, OPTIMIZATION = "run", "optimization"
NOTE = (
    "Unchanged since the owner of this key signed it. A signature says who vouches, not that they measured honestly: "
    "measure the candidate in it again with aisp bench verify."
)
Files = dict[str, bytes]


def of_run(ctx: Context, run_id: str, out: str | None) -> Bundle:
    """Bundle a stored run. Raises NotFound UNKNOWN_RUN, Refused OUTSIDE_ROOTS, UsageError NO_FOLDER, StoreError."""
    run = ctx.store.run(Run, run_id, ctx.sees)
    default = ctx.store.run_dir(run.id) / f"{run.id}{SUFFIX}"
    found, missing = _run_files(run)
    return _write(ctx, RUN, found, missing, files.destination(out, default, ctx.allow_write))


def of_optimization(ctx: Context, session: str, out: str | None) -> Bundle:
    """Bundle an optimisation that has ended, with all its runs. Raises as of_run and optimization.evidence."""
    runs, folder = sessions.evidence(ctx, session)
    found, missing = Files(), list[str]()
    for place in (folder / sessions.LOG, folder / sessions.SPEC, folder / sessions.CANDIDATES):
        for path in [place] if place.is_file() else sorted(place.iterdir()):
            found[f"{OPTIMIZATION}/{path.relative_to(folder).as_posix()}"] = path.read_bytes()
    for run_id in runs:
        try:
            more, gone = _run_files(ctx.store.run(Run, run_id, ctx.sees))
        except NotFound:
            more, gone = {}, [f"runs/{run_id}"]
        found |= more
        missing += gone
    default = folder / f"{session}{SUFFIX}"
    return _write(ctx, OPTIMIZATION, found, missing, files.destination(out, default, ctx.allow_write))


def _run_files(run: Run) -> tuple[Files, list[str]]:
    """(files, names of those that were cleaned): the record, the logs of rounds and the sources of a run."""
    prefix = f"runs/{run.id}"
    found, missing = {f"{prefix}/run.json": run.model_dump_json(indent=1).encode()}, list[str]()
    logs = [Path(comparison.log_path) for comparison in run.comparisons if comparison.log_path]
    folders = {path.parent for path in logs}
    wanted = {path.name: path for path in logs}
    wanted |= {name: folder / name for folder in folders for name in run.sources}
    for name, path in wanted.items():
        try:
            found[f"{prefix}/{name}"] = path.read_bytes()
        except OSError:
            missing.append(f"{prefix}/{name}")
    return found, missing


def _write(ctx: Context, kind: str, found: Files, missing: list[str], path: Path) -> Bundle:
    claims = _claims(kind, found)
    key = signing.private_key(ctx.settings.home)
    public = signing.public_bytes(key)
    facts = {
        "kind": kind,
        "created_at": ctx.clock(),
        "version": aisp_mcp.__version__,
        "machine": _machine(found),
        "claims": [claim.model_dump(mode="json") for claim in claims],
        "missing": missing,
    }
    written = files.write(path, archive.pack(found, facts, public, key.sign))
    return Bundle(
        path=written.path,
        bytes=written.bytes,
        files=len(found),
        fingerprint=signing.fingerprint(public),
        claims=claims,
        missing=missing,
    )


def verify(path: Path, key: str | None) -> BundleReport:
    """Check a bundle: every byte, the chain of each log, and that its claims follow from its logs.

    key: the fingerprint that is demanded, in whole. Raises NotFound NO_SUCH_FILE, UsageError BAD_KEY, Refused
    NO_BUNDLE, BUNDLE_ALTERED, OTHER_KEY or BUNDLE_INCONSISTENT.
    """
    wanted = re.sub(r"[\s:]", "", key).lower() if key is not None else None
    if wanted is not None and not re.fullmatch(r"[0-9a-f]{64}", wanted):
        raise UsageError("BAD_KEY", "A fingerprint has 64 hexadecimal digits.", "Whoever made the bundle was told it.")
    manifest, found = archive.unpack(_read(path))
    name = signing.fingerprint(bytes.fromhex(manifest["key"]))
    if wanted not in (None, name):
        raise Refused("OTHER_KEY", f"It was signed by another key, {name}.", "Ask its sender for their fingerprint.")
    try:
        chains = sum(_check_run(found, member) for member in found if re.fullmatch(r"runs/[^/]+/run\.json", member))
        claims = _claims(manifest["kind"], found)
        if [claim.model_dump(mode="json") for claim in claims] != manifest["claims"]:
            raise ValueError("its claims are not those of its records")
        if manifest["kind"] == OPTIMIZATION:
            chains += _check_optimization(found)
        report = BundleReport(
            passed=True,
            fingerprint=name,
            key_expected=wanted is not None,
            files=len(found),
            chains=chains,
            claims=claims,
            note=NOTE,
            **{fact: manifest[fact] for fact in ("kind", "created_at", "version", "machine", "missing")},
        )
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        message = f"It is as it was signed, but contradicts itself: {str(error)[:200]}."
        raise Refused("BUNDLE_INCONSISTENT", message, "Do not believe it.") from error
    return report


def _read(path: Path) -> bytes:
    if not path.is_file():
        raise NotFound("NO_SUCH_FILE", f"There is no file {path}.", None)
    if path.stat().st_size > archive.MAX_BYTES:
        raise Refused("NO_BUNDLE", f"{path} is larger than {archive.MAX_BYTES >> 20} MiB.", None)
    return path.read_bytes()


def _claims(kind: str, contents: Mapping[str, bytes]) -> list[Claim]:
    """The claims that follow from the records: all verdicts of a run, or the best of an optimisation."""
    if kind == RUN:
        (text,) = (data for name, data in contents.items() if name.endswith("/run.json"))
        run = Run.model_validate_json(text)
        return [_claim(comparison, run.id) for comparison in run.comparisons]
    if kind != OPTIMIZATION:
        raise ValueError(f"its kind is {kind[:40]!r}")
    _, submissions, _ = sessions.parsed(_records(contents))
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
    """The GPU, else the processor, of the last run."""
    records = [data for name, data in contents.items() if name.endswith("/run.json")]
    if not records:
        return "unknown"
    run = Run.model_validate_json(records[-1])
    return str((run.gpus or [{}])[0].get("name") or run.host.get("cpu") or "unknown")


def _check_run(contents: Mapping[str, bytes], member: str) -> int:
    """Number of sound logs beside this record. Raises ValueError for one that is not, or another source."""
    run, folder = Run.model_validate_json(contents[member]), member.removesuffix("run.json")
    for name, digest in run.sources.items():
        if folder + name in contents and archive.sha256(contents[folder + name]) != digest:
            raise ValueError(f"{name} is not what was measured")
    sound = 0
    for comparison in run.comparisons:
        name = folder + Path(comparison.log_path or "").name
        if name in contents:
            _check_log(contents[name].decode(), name, comparison)
            sound += 1
    return sound


def _check_log(text: str, name: str, comparison: Comparison) -> None:
    """The log ends in the recorded head, and in the recorded verdict. Raises ValueError, KeyError."""
    last = json.loads(text.splitlines()[-1])
    if check_text(text, name) != comparison.log_sha256 or (last["verdict"], last["ratio"]) != (
        comparison.verdict,
        comparison.ratio,
    ):
        raise ValueError(f"{name} is not the log of the verdict on {comparison.target}")


def _check_optimization(contents: Mapping[str, bytes]) -> int:
    """The log of an optimisation is a chain, and names the files and the verdicts beside it. Raises ValueError."""
    started, submissions, _ = sessions.parsed(_records(contents))
    folder = f"{OPTIMIZATION}/"
    wanted = {
        f"{folder}{sessions.CANDIDATES}/{submission.number:03d}.py": submission.sha256 for submission in submissions
    }
    wanted[f"{folder}{sessions.SPEC}/{started.baseline}"] = started.baseline_sha256
    for name, digest in wanted.items():
        if archive.sha256(contents[name]) != digest:
            raise ValueError(f"{name} is not what was submitted")
    again = {submission.number: submission.again for submission in submissions if submission.again}
    said = {submission.number: submission.confirmed for submission in submissions if submission.confirmed is not None}
    if boards.confirm(boards.finalists(submissions), again) != said:
        raise ValueError("what it calls confirmed does not follow from its measurements")
    heads = {comparison.log_sha256 for comparison in _comparisons(contents)}
    for submission in submissions:
        if submission.again is not None and submission.again.log_sha256 not in heads:
            raise ValueError(f"the second measurement of candidate {submission.number} is not in it")
    return 1


def _comparisons(contents: Mapping[str, bytes]) -> Iterable[Comparison]:
    for name, data in contents.items():
        if name.endswith("/run.json"):
            yield from Run.model_validate_json(data).comparisons


def _records(contents: Mapping[str, bytes]) -> list[dict[str, object]]:
    """The records of the optimisation's log. Raises ValueError for a broken chain, KeyError where there is none."""
    text = contents[f"{OPTIMIZATION}/{sessions.LOG}"].decode()
    check_text(text, sessions.LOG)
    return [json.loads(line) for line in text.splitlines()]
