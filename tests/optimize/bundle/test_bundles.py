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
from measured import measure

from aisp_mcp.errors import AispError
from aisp_mcp.judge.pair import Pair
from aisp_mcp.optimize.bundle import archive, bundles
from aisp_mcp.server.context import Context
from aisp_mcp.server.dispatch import execute
from aisp_mcp.store.records.run import Run

SOURCES = {"sources/t-p/baseline.py": b"def run(a): ...\n", "sources/t-p/candidate.py": b"def run(a):\n    return a\n"}


@pytest.fixture
def run(ctx: Context) -> Run:
    """A stored run with its log and its sources."""
    folder = ctx.store.run_dir("r_small")
    for name, text in SOURCES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text)
    sources = folder / "sources/t-p"
    comparison = measure(Pair("t:p", sources / "baseline.py", "", sources / "candidate.py"), folder, [0.96] * 5)
    stored = Run(
        id="r_small",
        created_at=1.7e9,
        preset="default",
        profile="portable",
        environment={"host": {"cpu": "a processor"}},
        comparisons=[comparison],
        sources={name: hashlib.sha256(text).hexdigest() for name, text in SOURCES.items()},
    )
    ctx.store.save_run(stored, None)
    return stored


def call(cli_here: Any, *words: str) -> tuple[int, dict[str, Any]]:
    done = cli_here(*words, "--json")
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
    cli_here: Any, home: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, answer = call(cli_here, "bench", "bundle", "r_small")
    made = answer["result"]
    assert (code, made["files"], made["missing"]) == (0, 4, [])
    assert made["claims"][0]["verdict"] == "slower"
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


def test_altered_files_are_refused(cli_here: Any, ctx: Context, run: Run, tmp_path: Path) -> None:
    whole = Path(write(ctx)["path"]).read_bytes()
    copy = tmp_path / "copy.aisp.tar"
    copy.write_bytes(whole.replace(b"return a\n", b"return b\n"))
    code, answer = call(cli_here, "verify-bundle", str(copy))
    assert (code, answer["error"]["code"]) == (1, "BUNDLE_ALTERED")
    copy.write_bytes(whole[:-200])
    assert refused(ctx, copy) == "BUNDLE_ALTERED"
    copy.write_text("something else")
    assert refused(ctx, copy) == "NO_BUNDLE"
    assert refused(ctx, tmp_path / "nowhere") == "NO_SUCH_FILE"
    assert refused(ctx, Path("/proc/self/mem")) == "NO_BUNDLE"


def test_another_signer_is_seen_and_a_wrong_fingerprint_is_named(ctx: Context, run: Run) -> None:
    made = write(ctx)
    assert refused(ctx, Path(made["path"]), key="0" * 64) == "OTHER_KEY"
    assert refused(ctx, Path(made["path"]), key="0123") == "BAD_KEY"


RECORD, LOG = "runs/r_small/run.json", "runs/r_small/t-p.rounds.jsonl"
CANDIDATE = "runs/r_small/sources/t-p/candidate.py"


class Forgery:
    """A bundle that its owner can change anywhere before it is signed again."""

    def __init__(self, facts: dict[str, Any], files: dict[str, bytes]) -> None:
        self.facts, self.files = facts, files
        self.run = json.loads(files[RECORD])
        self.comparison = self.run["comparisons"][0]
        self.log = [json.loads(line) for line in files[LOG].decode().splitlines()]

    def write(self, path: Path) -> None:
        """Chain the log anew, name its head, state the claims, and sign."""
        head, lines = "0" * 64, []
        for record in self.log:
            lines.append(json.dumps({**record, "prev": head}, separators=(",", ":")))
            head = hashlib.sha256(lines[-1].encode()).hexdigest()
        if LOG in self.files:
            self.files[LOG] = ("\n".join(lines) + "\n").encode()
        self.comparison["log_sha256"] = head
        self.files[RECORD] = json.dumps(self.run).encode()
        self.facts["claims"][0] |= {name: self.comparison[name] for name in ("verdict", "sentence")}
        key = Ed25519PrivateKey.generate()
        path.write_bytes(archive.pack(self.files, self.facts, key.public_key().public_bytes_raw(), key.sign))


def state_ninefold(forged: Forgery) -> None:
    forged.comparison |= {"verdict": "faster", "ratio": 9.0, "sentence": "faster: 9.00x"}
    forged.comparison["interval"] |= {"low": 8.9, "high": 9.1}
    forged.log[-1] |= {"verdict": "faster", "ratio": 9.0}


def narrow_interval(forged: Forgery) -> None:
    forged.comparison["interval"]["high"] = 0.961


def lower_floor(forged: Forgery) -> None:
    forged.comparison["noise_floor"] = 0.001


def change_sentence(forged: Forgery) -> None:
    forged.comparison["sentence"] = forged.comparison["sentence"].replace("0.96", "0.98")


def raise_checks(forged: Forgery) -> None:
    forged.comparison["verification"]["checked"] = 10_000


def hide_flag(forged: Forgery) -> None:
    (terms,) = (record for record in forged.log if record["kind"] == "terms")
    terms["flags"] = [{"code": "source_hint", "severity": "warn", "message": "threads", "evidence": {}}]


def praise_peak(forged: Forgery) -> None:
    forged.comparison["peak"] = {"kind": "gemm_float32", "share": 0.99, "rate": 1e12, "ceiling": 1.01e12}


def leave_replicate_out(forged: Forgery) -> None:
    forged.log = [record for record in forged.log if record.get("replicate") != 4]
    forged.comparison["replicates"] = 4


def leave_rounds_alone(forged: Forgery) -> None:
    forged.log = [record for record in forged.log if record["kind"] != "replicate" or record["replicate"] != 4]


def swap_source(forged: Forgery) -> None:
    forged.files[CANDIDATE] = b"def run(a):\n    return 2 * a\n"
    forged.run["sources"]["sources/t-p/candidate.py"] = hashlib.sha256(forged.files[CANDIDATE]).hexdigest()


def swap_source_alone(forged: Forgery) -> None:
    forged.files[CANDIDATE] = b"def run(a):\n    return 2 * a\n"


def drop_log(forged: Forgery) -> None:
    del forged.files[LOG]
    forged.facts["missing"] = [LOG]


def drop_terms(forged: Forgery) -> None:
    forged.log = [record for record in forged.log if record["kind"] != "terms"]


def change_preset(forged: Forgery) -> None:
    forged.run["preset"] = "release"


def change_machine(forged: Forgery) -> None:
    forged.facts["machine"] = "a faster one"


def deny_missing(forged: Forgery) -> None:
    del forged.files[CANDIDATE]


def change_date(forged: Forgery) -> None:
    forged.facts["created_at"] = forged.run["created_at"] - 1


def change_id(forged: Forgery) -> None:
    forged.run["id"] = forged.facts["claims"][0]["run_id"] = "r_other"


@pytest.mark.parametrize(
    "change",
    [
        state_ninefold, narrow_interval, lower_floor, change_sentence, raise_checks, hide_flag, praise_peak,
        leave_replicate_out, leave_rounds_alone, swap_source, swap_source_alone, drop_log, drop_terms, change_preset,
        change_machine, deny_missing, change_date, change_id,
    ],
)  # fmt: skip
def test_what_does_not_follow_from_the_rounds_is_refused_whoever_signs_it(
    ctx: Context, run: Run, tmp_path: Path, change: Callable[[Forgery], None]
) -> None:
    copy = tmp_path / "copy.aisp.tar"
    forged = Forgery(*archive.unpack(Path(write(ctx)["path"]).read_bytes()))
    forged.write(copy)
    assert bundles.verify(copy, None).passed
    change(forged)
    forged.write(copy)
    assert refused(ctx, copy) == "BUNDLE_INCONSISTENT"


def test_a_verdict_whose_log_was_cleaned_is_not_signed(run: Run, ctx: Context) -> None:
    (ctx.store.run_dir("r_small") / "t-p.rounds.jsonl").unlink()
    answer = execute("aisp_bench_bundle", {"run": "r_small"}, ctx)
    assert answer.error is not None
    assert (answer.error.code, "the log of t:p is missing" in answer.error.message) == ("NO_EVIDENCE", True)


def test_evidence_that_was_cleaned_is_named(run: Run, ctx: Context) -> None:
    (ctx.store.run_dir("r_small") / "sources/t-p/candidate.py").unlink()
    made = write(ctx)
    assert made["missing"] == ["runs/r_small/sources/t-p/candidate.py"]
    assert execute("aisp_verify_bundle", {"path": made["path"]}, ctx).result["missing"] == made["missing"]


FUNCTIONS = "def slow(x):\n    return (x * 2).sum(1)\n\n\ndef quick(x):\n    return x.sum(1).mul_(2)\n"
PROBLEM = """import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return (x * 2).sum(1)


def get_inputs():
    return [torch.randn(64, 64)]


def get_init_inputs():
    return []
"""
OWN = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x.sum(1).mul_(2)\n"


@pytest.mark.torch
@pytest.mark.usefixtures("least_quick", "recorded_here")
@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("texts", "words", "sources"),
    [
        pytest.param(
            {"mine.py": FUNCTIONS},
            ("mine.py:slow", "mine.py:quick", "--inputs", "x=randn(64, 64)"),
            {"candidate_source/mine.py": FUNCTIONS},
            marks=pytest.mark.slow,
        ),
        (
            {"rows.py": PROBLEM, "own.py": OWN, "other.py": OWN},
            ("rows.py", "own.py"),
            {"_rows/own.py": OWN},
        ),
    ],
)
def test_the_evidence_of_a_pair_that_was_made_for_a_run_holds_what_it_calls(
    cli_here: Any, home: Path, tmp_path: Path, texts: dict[str, str], words: tuple[str, ...], sources: dict[str, str]
) -> None:
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    done = cli_here("bench", "verify", *words, "--preset", "quick", "--json", cwd=tmp_path)
    answer = json.loads(done.stdout)
    assert answer["status"] == "ok", answer
    code, answer = call(cli_here, "bench", "bundle", "last")
    assert code == 0, answer
    code, _ = call(cli_here, "verify-bundle", answer["result"]["path"])
    assert code == 0
    _, contents = archive.unpack(Path(answer["result"]["path"]).read_bytes())
    for end, text in sources.items():
        assert [data.decode() for name, data in contents.items() if name.endswith(end)] == [text]
    assert not [name for name in contents if "other" in name]


def test_a_key_that_others_may_read_signs_nothing(ctx: Context, run: Run, home: Path) -> None:
    write(ctx)
    (home / "signing-key").chmod(0o640)
    answer = execute("aisp_bench_bundle", {"run": "r_small"}, ctx)
    assert answer.error is not None
    assert answer.error.code == "KEY_UNSAFE"
    os.unlink(home / "signing-key")
    write(ctx)
