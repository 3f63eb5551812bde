"""`aisp doctor`: what it finds, what it writes, and what it leaves as it was."""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
from front_support import Cli

from aisp_mcp.errors import AispError
from aisp_mcp.front.doctor import command
from aisp_mcp.front.doctor.clients import apply_change, clients, entry, plan_change
from aisp_mcp.front.doctor.command import ServerProbe, probe

NAMES = ["claude-code", "claude-desktop", "cursor", "vscode"]


@pytest.fixture(autouse=True)
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user with nothing configured, in an empty folder."""
    for name in [name for name in os.environ if name.startswith(("AISP_", "XDG_"))]:
        monkeypatch.delenv(name)
    home, folder = tmp_path / "user", tmp_path / "folder"
    home.mkdir()
    folder.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(folder)
    return home


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server is not started: these tests are about files."""
    monkeypatch.setattr(command, "probe", lambda entry: ServerProbe(True, "stands in", 0.1, 3))


def place(name: str) -> Path:
    return next(client.files[0].path for client in clients() if client.name == name)


def test_our_own_entry_starts_and_answers() -> None:
    seen = probe(entry())
    assert seen.ok, seen.message
    assert seen.tools > 10


@pytest.mark.usefixtures("quick")
def test_a_user_with_nothing_is_told_what_to_do(cli_here: Cli, user: Path) -> None:
    done = cli_here("doctor")
    assert done.returncode == 0, done.stderr
    for name in NAMES:
        assert f"aisp doctor --client {name}" in done.stdout
    assert '"mcpServers"' in done.stdout
    assert '"servers"' in done.stdout
    assert "claude mcp add --scope user aisp -- " in done.stdout
    assert list(user.iterdir()) == []


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("name", NAMES)
def test_a_client_is_configured_and_then_found(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.run(["--client", name, "--dry-run"]) == 0
    assert not place(name).exists()
    assert command.run(["--client", name]) == 0
    shown = capsys.readouterr().out
    key = "servers" if name == "vscode" else "mcpServers"
    assert json.loads(place(name).read_text()) == {key: {"aisp": entry()}}
    assert f'+    "aisp": {{\n+      "type": "stdio",\n+      "command": "{entry()["command"]}"' in shown
    assert command.run(["--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    states = {finding["client"]: finding["state"] for finding in answer["clients"]}
    assert states == {other: "ok" if other == name else "missing" for other in NAMES}
    assert command.run(["--client", name]) == 0
    assert "up to date" in capsys.readouterr().out


@pytest.mark.usefixtures("quick")
def test_everything_else_in_the_file_stays(capsys: pytest.CaptureFixture[str]) -> None:
    path = place("cursor")
    path.parent.mkdir()
    there = {"zeta": [1, 2.5, None], "mcpServers": {"other": {"command": "ö", "env": {"KEY": "secret"}}}, "alpha": {}}
    path.write_text(json.dumps(there, indent=4, ensure_ascii=False) + "\n")
    path.chmod(0o640)
    before = path.read_bytes()
    assert command.run(["--client", "cursor"]) == 0
    after = json.loads(path.read_text())
    assert after["mcpServers"].pop("aisp") == entry()
    assert after == there
    assert list(after) == list(there)
    changed = [line for line in capsys.readouterr().out.splitlines() if line.startswith(("-", "+"))]
    assert not any(line.startswith("-") and '"zeta"' in line for line in changed)
    [copy] = path.parent.glob("mcp.json.*.bak")
    assert copy.read_bytes() == before
    assert {stat.S_IMODE(file.stat().st_mode) for file in (path, copy)} == {0o640}
    assert {file.name for file in path.parent.iterdir()} == {path.name, copy.name}


@pytest.mark.usefixtures("quick")
def test_a_link_stays_a_link(tmp_path: Path) -> None:
    path = place("vscode")
    path.parent.mkdir(parents=True)
    real = tmp_path / "dotfiles.json"
    real.write_text("{}")
    path.symlink_to(real)
    assert command.run(["--client", "vscode"]) == 0
    assert path.is_symlink()
    assert "aisp" in json.loads(real.read_text())["servers"]


@pytest.mark.parametrize(
    "text",
    [
        '{"servers": {} // mine\n}',
        '{"servers": {},}',
        "[]",
        '{"servers": []}',
        '{"servers": {}, "servers": {"a": {}}}',
        "\xff",
        "[" * 100_000,
    ],
)
@pytest.mark.usefixtures("quick")
def test_a_file_that_would_lose_something_is_left_alone(text: str) -> None:
    path = place("vscode")
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="latin-1")
    with pytest.raises(AispError) as caught:
        command.run(["--client", "vscode"])
    assert caught.value.code == "UNREADABLE_CONFIG"
    assert path.read_text(encoding="latin-1") == text


@pytest.mark.usefixtures("quick")
def test_a_file_that_its_client_writes_meanwhile_is_left_alone() -> None:
    path = place("vscode")
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    change = plan_change(clients()[3].files[0], entry())
    path.write_text('{"new": 1}')
    with pytest.raises(AispError) as caught:
        apply_change(change)
    assert caught.value.code == "CONFIG_CHANGED"
    assert path.read_text() == '{"new": 1}'


def configure(path: Path, **theirs: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"mcpServers": {"aisp": theirs}}))


BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "no such program": ({"command": "/no/such/aisp-mcp"}, "is not an executable program"),
    "no command": ({}, "has no command"),
    "another program": (
        {"command": sys.executable, "args": ["-c", "print('hello')"]},
        "non-protocol text",
    ),
    "a program that fails": (
        {"command": sys.executable, "args": ["-c", "raise SystemExit('no licence')"]},
        "no licence",
    ),
    "a wrong option": ({"command": sys.executable, "args": ["-m", "aisp_mcp", "--no-such"]}, "does not answer"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_entry_is_named(case: str) -> None:
    theirs, message = BROKEN[case]
    configure(place("cursor"), **theirs)
    [finding] = command.check(next(c for c in clients() if c.name == "cursor"), ServerProbe(True, ""))
    assert finding.state == "broken"
    assert message in finding.message


def test_what_a_folder_brings_along_is_not_run(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    configure(place("claude-code"), command=sys.executable, args=["-c", f"open({str(ran)!r}, 'w')"])
    [finding] = command.check(clients()[0], ServerProbe(True, ""))
    assert (finding.state, "not tried" in finding.message) == ("ok", True)
    assert not ran.exists()


@pytest.mark.usefixtures("quick")
def test_settings_of_the_shell_go_along_but_not_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("AISP_HOME", "/data"), ("AISP_LLM_KEY", "sk-1"), ("AISP_KEEP_DAYS", "")):
        monkeypatch.setenv(name, value)
    assert entry()["env"] == {"AISP_HOME": "/data"}


@pytest.mark.usefixtures("quick")
def test_the_exit_code_says_whether_something_is_broken(capsys: pytest.CaptureFixture[str]) -> None:
    path = place("claude-desktop")
    path.parent.mkdir(parents=True)
    path.write_text("{ // comment\n}")
    assert command.run([]) == 1
    assert "not plain JSON" in capsys.readouterr().out


def test_an_unknown_client_is_a_usage_error(cli: Cli) -> None:
    done = cli("doctor", "--client", "emacs")
    assert done.returncode == 2
    assert "UNKNOWN_CLIENT" in done.stderr
    assert "claude-code, claude-desktop, cursor, vscode" in done.stderr
