"""Bundles: whole ones verify anywhere, altered ones nowhere, and a key of another signer is seen."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from aisp_mcp.errors import AispError
from aisp_mcp.judge.audit_log import ChainLog
from aisp_mcp.judge.records.run import Run
from aisp_mcp.judge.records.verdict import Comparison, Verdict
from aisp_mcp.optimize.bundle import archive, bundles
from aisp_mcp.server.context import Context
from aisp_mcp.server.dispatch import execute

SOURCES = {"sources/p/baseline.py": b"def run(a): ...\n", "sources/p/candidate.py": b"def run(a):\n    return a\n"}


@pytest.fixture
def run(ctx: Context) -> Run:
    """A stored run with its log and its sources."""
    folder = ctx.store.run_dir("r_small")
    for name, text in SOURCES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text)
    log = ChainLog(folder / "p.rounds.jsonl")
    log.append("open", target="t:p")
    log.append("verdict", verdict="faster", ratio=1.5)
    log.close()
    one = Comparison(
        target="t:p", candidate="", verdict=Verdict.FASTER, sentence="faster: 1.50x", ratio=1.5, isolation="L3",
        replicates=5, log_path=str(log.path), log_sha256=log.head,
    )  # fmt: skip
    stored = Run(
        id="r_small",
        created_at=1.7e9,
        preset="default",
        profile="portable",
        environment={"host": {"cpu": "a processor"}},
        comparisons=[one],
        sources={name: hashlib.sha256(text).hexdigest() for name, text in SOURCES.items()},
    )
    ctx.store.save_run(stored, None)
    return stored


def call(cli: Any, *words: str) -> tuple[int, dict[str, Any]]:
    done = cli(*words, "--json")
    return done.returncode, json.loads(done.stdout)


def write(ctx: Context) -> dict[str, Any]:
    """A bundle of the stored run."""
    answer = execute("aisp_bench_bundle", {"run": "r_small"}, ctx)
    assert answer.error is None
    return dict(answer.result)


def refused(ctx: Context, path: Path, **more: str) -> str:
    answer = execute("aisp_verify_bundle", {"path": str(path), **more}, ctx)
    assert answer.error is not None
    return answer.error.code


def test_a_whole_bundle_verifies_without_torch_and_elsewhere(
    cli: Any, home: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, answer = call(cli, "bench", "bundle", "r_small")
    made = answer["result"]
    assert (code, made["files"], made["missing"]) == (0, 4, [])
    assert made["claims"][0]["verdict"] == "faster"
    assert (home / "signing-key").stat().st_mode & 0o777 == 0o600
    here = tmp_path / "elsewhere.aisp.tar"
    here.write_bytes(Path(made["path"]).read_bytes())
    monkeypatch.setenv("AISP_HOME", str(tmp_path / "another home"))
    program = "import sys; sys.modules.update(torch=None, numpy=None); from aisp_mcp.front.cli.main import main; main()"
    words = [sys.executable, "-c", program, "verify-bundle", str(here), "--key", made["fingerprint"].upper(), "--json"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=50, check=True)
    report = json.loads(done.stdout)["result"]
    assert (report["passed"], report["key_expected"], report["kind"]) == (True, True, "run")
    assert (report["chains"], report["files"], report["machine"]) == (1, 4, "a processor")
    assert report["claims"] == made["claims"]
    assert subprocess.run(["tar", "-tf", here], capture_output=True, text=True, check=True).stdout.count("sources") == 2


def test_a_bundle_with_any_byte_changed_is_refused() -> None:
    key = Ed25519PrivateKey.generate()
    whole = archive.pack({"a.txt": b"evidence"}, {"kind": "run"}, key.public_key().public_bytes_raw(), key.sign)
    assert archive.unpack(whole)[1] == {"a.txt": b"evidence"}
    believed, codes = [], set()
    for place in range(len(whole)):
        altered = bytearray(whole)
        altered[place] ^= 1 << place % 8
        try:
            archive.unpack(bytes(altered))
            believed.append(place)
        except AispError as error:
            codes.add(error.code)
    assert believed == []
    assert codes == {"BUNDLE_ALTERED", "NO_BUNDLE"}
    for other in (whole[:-1], whole[1:], whole + b"\0", whole + whole, b"", whole[:512]):
        with pytest.raises(AispError):
            archive.unpack(other)


def test_a_signed_run_with_a_byte_changed_anywhere_is_refused(ctx: Context, run: Run, tmp_path: Path) -> None:
    whole, copy = Path(write(ctx)["path"]).read_bytes(), tmp_path / "copy.aisp.tar"
    headers = [
        block + at for block in range(0, len(whole), 512) for at in (0, 124, 148, 156, 257) if block + at < len(whole)
    ]
    places = sorted({*headers, *range(0, len(whole), max(1, len(whole) // 200)), len(whole) - 1})
    assert len(places) >= 200
    codes = set()
    for place in places:
        altered = bytearray(whole)
        altered[place] ^= 0x41
        copy.write_bytes(altered)
        with pytest.raises(AispError) as caught:
            bundles.verify(copy, None)
        codes.add(caught.value.code)
    assert codes <= {"BUNDLE_ALTERED", "NO_BUNDLE"}
    copy.write_bytes(whole)
    assert bundles.verify(copy, None).passed


def test_altered_files_are_refused(cli: Any, ctx: Context, run: Run, tmp_path: Path) -> None:
    whole = Path(write(ctx)["path"]).read_bytes()
    copy = tmp_path / "copy.aisp.tar"
    copy.write_bytes(whole.replace(b"return a\n", b"return b\n"))
    code, answer = call(cli, "verify-bundle", str(copy))
    assert (code, answer["error"]["code"]) == (1, "BUNDLE_ALTERED")
    copy.write_bytes(whole[:-200])
    assert refused(ctx, copy) == "BUNDLE_ALTERED"
    copy.write_text("something else")
    assert refused(ctx, copy) == "NO_BUNDLE"
    assert refused(ctx, tmp_path / "nowhere") == "NO_SUCH_FILE"


def test_another_signer_is_seen_and_a_wrong_fingerprint_is_named(ctx: Context, run: Run) -> None:
    made = write(ctx)
    assert refused(ctx, Path(made["path"]), key="0" * 64) == "OTHER_KEY"
    assert refused(ctx, Path(made["path"]), key="0123") == "BAD_KEY"


def change_verdict(found: dict[str, bytes], facts: dict[str, Any]) -> None:
    name = "runs/r_small/run.json"
    found[name] = found[name].replace(b'"verdict": "faster"', b'"verdict": "same"')
    facts["claims"][0]["verdict"] = "same"


def change_log(found: dict[str, bytes], facts: dict[str, Any]) -> None:
    name = "runs/r_small/p.rounds.jsonl"
    found[name] = found[name].replace(b'"t:p"', b'"t:q"')


def change_source(found: dict[str, bytes], facts: dict[str, Any]) -> None:
    found["runs/r_small/sources/p/candidate.py"] = b"def run(a):\n    return 2 * a\n"


def change_claim(found: dict[str, bytes], facts: dict[str, Any]) -> None:
    facts["claims"][0]["sentence"] = "faster: 15.0x"


@pytest.mark.parametrize("change", [change_verdict, change_log, change_source, change_claim])
def test_who_signs_a_contradiction_is_refused(
    ctx: Context, run: Run, tmp_path: Path, change: Callable[[dict[str, bytes], dict[str, Any]], None]
) -> None:
    facts, found = archive.unpack(Path(write(ctx)["path"]).read_bytes())
    change(found, facts)
    key = Ed25519PrivateKey.generate()
    forged = tmp_path / "forged.aisp.tar"
    forged.write_bytes(archive.pack(found, facts, key.public_key().public_bytes_raw(), key.sign))
    assert refused(ctx, forged) == "BUNDLE_INCONSISTENT"


def test_evidence_that_was_cleaned_is_named(run: Run, ctx: Context) -> None:
    (ctx.store.run_dir("r_small") / "sources/p/candidate.py").unlink()
    made = write(ctx)
    assert made["missing"] == ["runs/r_small/sources/p/candidate.py"]
    assert execute("aisp_verify_bundle", {"path": made["path"]}, ctx).result["missing"] == made["missing"]


def test_a_key_that_others_may_read_signs_nothing(ctx: Context, run: Run, home: Path) -> None:
    write(ctx)
    (home / "signing-key").chmod(0o640)
    answer = execute("aisp_bench_bundle", {"run": "r_small"}, ctx)
    assert answer.error is not None
    assert answer.error.code == "KEY_UNSAFE"
    os.unlink(home / "signing-key")
    write(ctx)
