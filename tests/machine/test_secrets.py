"""No secret leaves the machine: 20 kinds planted in the environment, in command lines and in files, and looked for."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from aisp_mcp.system.redact import MASK, redact, redact_tree

# What must not be seen again, by the way it is written down. Each value is made up, in its provider's format.
_RANDOM = "Zx81kQpLm29VtRw7Ns5Yc3Bd"
SECRETS = {
    "AWS_ACCESS_KEY_ID": "AKIA" + "QWERTYUIOP123456",
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI" + "K7MDENGbPxRfiCYzzzzzzzzKEY",
    "GITHUB_TOKEN": "ghp_" + _RANDOM + "abcdef123456",
    "GITHUB_FINE_GRAINED": "github_pat_" + _RANDOM + "_" + _RANDOM,
    "GITLAB_PAT": "glpat-" + _RANDOM,
    "SLACK_BOT": "xoxb-1234567890-" + _RANDOM,
    "OPENAI_API_KEY": "sk-proj-" + _RANDOM,
    "ANTHROPIC_API_KEY": "sk-ant-api03-" + _RANDOM,
    "HF_TOKEN": "hf_" + _RANDOM,
    "NGC_API_KEY": "nvapi-" + _RANDOM,
    "GOOGLE_API_KEY": "AIza" + "SyA-" + _RANDOM + "1234567",
    "NPM_TOKEN": "npm_" + _RANDOM + "abcd",
    "PYPI_TOKEN": "pypi-" + "AgEIcHlwaS5vcmc" + _RANDOM,
    "STRIPE_KEY": "sk_live_" + _RANDOM,
    "SENDGRID": "SG." + _RANDOM + "." + _RANDOM,
    "JWT": "eyJhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiIxMjM0NTY3ODkwIn0." + _RANDOM,
    "DATABASE_URL": "postgres://admin:hunter2hunter2@db.example.com/prod",
    "WANDB_API_KEY": "0123456789abcdef" + "0123456789abcdef01234567",
    "MY_PASSWORD": "correct-horse-battery-staple",
    "AZURE_STORAGE": "AccountKey=" + _RANDOM + "==",
    "SSH_KEY": "-----BEGIN OPENSSH PRIVATE KEY-----\n" + _RANDOM + "\n-----END OPENSSH PRIVATE KEY-----",
    "AISP_LLM_KEY": "local-" + _RANDOM,
}
# The part of a value that a reader could use.
NEEDLES = {
    name: "hunter2hunter2" if name == "DATABASE_URL" else _RANDOM if name in ("AZURE_STORAGE", "SSH_KEY") else value
    for name, value in SECRETS.items()
}
TOOLS = [
    "aisp_triage",
    "aisp_status",
    "aisp_gpu_info",
    "aisp_gpu_power",
    "aisp_gpu_topology",
    "aisp_gpu_topology_matrix",
    "aisp_system_software",
    "aisp_system_dependencies",
    "aisp_system_capabilities",
    "aisp_system_full",
    "aisp_context_summary",
    "aisp_context_full",
    "aisp_ai_status",
]
ASK = """
import sys
from aisp_mcp.server.context import Context
from aisp_mcp.server.dispatch.calls import execute
from aisp_mcp.server.dispatch.loading import load_catalog
from aisp_mcp.system.manifest import manifest
ctx = Context()
load_catalog(ctx.settings)
for name in sys.argv[2:]:
    print(execute(name, {}, ctx).model_dump_json())
print(execute("aisp_info_bundle", {"to": sys.argv[1]}, ctx).model_dump_json())
print(manifest())
"""


def test_there_are_20_kinds() -> None:
    assert len(SECRETS) >= 20


@pytest.mark.parametrize("name", SECRETS)
@pytest.mark.parametrize(
    "form",
    ["export {name}={value}", '{{"{name}": "{value}"}}', "job --flag x --{name} {value} run", "{name}: {value}"],
)
def test_each_kind_is_taken_out_in_each_form(name: str, form: str) -> None:
    text = f"before\n{form.format(name=name.lower(), value=SECRETS[name])}\nafter"
    clean = redact(text)
    if form.startswith("job") and name in ("AZURE_STORAGE", "MY_PASSWORD"):
        assert NEEDLES[name] not in clean  # an option's value is the word after it
    assert NEEDLES[name] not in clean
    assert MASK in clean
    assert clean.startswith("before\n")


@pytest.mark.parametrize("name", ["GITHUB_TOKEN", "OPENAI_API_KEY", "HF_TOKEN", "JWT", "SSH_KEY", "SLACK_BOT"])
def test_known_formats_go_without_any_name(name: str) -> None:
    assert NEEDLES[name] not in redact(f"some words {SECRETS[name]} and more")


def test_headers_netrc_and_urls() -> None:
    text = "Authorization: Bearer abcdef0123456789\nmachine h login me password s3cretpw\nhttps://me:tok3n@host/x"
    clean = redact(text)
    assert not any(word in clean for word in ("abcdef0123456789", "s3cretpw", "tok3n"))
    assert "host/x" in clean


@pytest.mark.parametrize(
    "text",
    [
        "2048 tokens per second, 12 token types",
        "sm__inst_executed_pipe_tensor.sum 5",
        "torch==2.13.0 tokenizers==0.22.1",
        "GPU-00000000-0000-0000-0000-000000000000",
        "cc 9.0, driver 580.159.04, sk 3",
    ],
)
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert redact(text) == text


def test_a_tree_is_redacted_by_its_keys() -> None:
    tree = {"api_key": "plainvalue", "list": [{"password": "x1"}, "hf_" + _RANDOM], "count": 3, "token_count": 7}
    clean = redact_tree(tree)
    assert clean["api_key"] == MASK
    assert clean["list"][0]["password"] == MASK
    assert clean["list"][1] == MASK
    assert (clean["count"], clean["token_count"]) == (3, 7)


def test_hostnames_go_on_request() -> None:
    assert redact("run on node17.cluster and node170", ("node17.cluster", "node17")) == "run on HOST and node170"
    assert redact("run on node17") == "run on node17"


def test_nothing_planted_comes_out_of_any_tool_or_of_the_bundle(tmp_path: Path) -> None:
    home = tmp_path / "home"
    work = tmp_path / "work"
    work.mkdir()
    lines = "\n".join(f"{name}={value}" for name, value in SECRETS.items())
    for file in (".env", ".netrc", "config.json", "notes.txt"):
        (work / file).write_text(lines)
    env = {**os.environ, **SECRETS, "AISP_HOME": str(home), "HOME": str(work), "CUDA_VISIBLE_DEVICES": _RANDOM[:4]}
    env["NCCL_DEBUG"] = SECRETS["HF_TOKEN"]  # an allowed variable that someone filled with the wrong thing
    holder = subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()", *SECRETS.values()], stdin=subprocess.PIPE, env=env
    )
    try:
        command = [sys.executable, "-c", ASK, str(home / "bundle"), *TOOLS]
        done = subprocess.run(command, env=env, cwd=work, capture_output=True, text=True, check=True, timeout=50)
    finally:
        holder.communicate()
    written = {path.name: path.read_text() for path in (home / "bundle").iterdir()}
    assert set(written) >= {"README.md", "machine.json", "manifest.json", "packages.txt"}
    json.loads(written["machine.json"])
    everything = "\n".join([done.stdout, done.stderr, *written.values()])
    assert [name for name, needle in NEEDLES.items() if needle in everything] == []
    assert re.search(r'"status":"ok"', done.stdout)
