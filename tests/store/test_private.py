"""Ownership of the store: made for one user, kept so, and refused where it cannot be."""

from __future__ import annotations

import contextlib
import os
import stat
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from aisp_mcp.errors import StoreError
from aisp_mcp.store import private
from aisp_mcp.store.database import Store
from aisp_mcp.store.files import make_folder, write_atomic, write_once


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def refusal(home: Path) -> StoreError:
    with pytest.raises(StoreError) as caught:
        Store(home)
    return caught.value


@pytest.fixture(autouse=True)
def _open_umask() -> object:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.parametrize("made", [None, 0o777, 0o755])
def test_the_store_is_its_owners_alone_whoever_made_the_folder(tmp_path: Path, made: int | None) -> None:
    home = tmp_path / "home"
    if made:
        home.mkdir(mode=made)
    with Store(home) as store:
        store.db.change("DELETE FROM jobs")
        assert mode(home) == 0o700
        assert {path.name: mode(path) for path in home.iterdir()} == dict.fromkeys(
            ("aisp.db", "aisp.db-wal", "aisp.db-shm", "reserve"), 0o600
        )


def test_a_store_that_was_open_is_closed_to_others(tmp_path: Path) -> None:
    Store(tmp_path / "home").close()
    (tmp_path / "home").chmod(0o755)
    (tmp_path / "home" / "aisp.db").chmod(0o666)
    Store(tmp_path / "home").close()
    assert (mode(tmp_path / "home"), mode(tmp_path / "home" / "aisp.db")) == (0o700, 0o600)


def test_a_folder_that_serves_others_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    home, temporary = tmp_path / "somebodys", tmp_path / "tmp"
    home.mkdir(mode=0o755)
    (home / "letter").touch()
    temporary.mkdir()
    temporary.chmod(0o1777)
    for folder, kept in ((home, 0o755), (temporary, 0o1777)):
        assert refusal(folder).code == "STORE_UNSAFE"
        assert mode(folder) == kept
        assert not (folder / "aisp.db").exists()


def test_a_folder_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "home").mkdir(mode=0o700)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    error = refusal(tmp_path / "home")
    assert error.code == "STORE_UNSAFE"
    assert f"belongs to user {os.getuid()}" in error.message


def test_a_database_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "aisp.db").touch()
    owned, own = [], private._own

    def but_the_database(path: Path, expected: int) -> None:
        owned.append(path.name)
        if path.name == "aisp.db":
            monkeypatch.setattr(os, "geteuid", lambda: -1)
        own(path, expected)

    monkeypatch.setattr(private, "_own", but_the_database)
    assert refusal(tmp_path).code == "STORE_UNSAFE"
    assert owned[-1] == "aisp.db"


def test_a_home_that_is_no_folder_says_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for name, words in {
        "file": "is a file",
        "link": "which is not a folder",
        "loop": "",
        "file/below": "Not a directory",
        "x" * 300: "too long",
    }.items():
        error = refusal(tmp_path / name)
        assert error.code == "STORE_UNWRITABLE"
        assert words in error.message


def test_a_full_disk_is_named_wherever_it_is_met(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(*_: object, **__: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(Path, "mkdir", no_room)
    assert refusal(tmp_path / "home").code == "STORE_FULL"
    with pytest.raises(StoreError) as caught:
        make_folder(tmp_path / "home" / "runs" / "j_1")
    assert caught.value.code == "STORE_FULL"


@pytest.mark.parametrize("write", [write_once, write_atomic])
def test_threads_that_write_the_same_file_at_once_do_not_disturb_each_other(
    tmp_path: Path, write: Callable[[Path, bytes], None]
) -> None:
    """One of them wins: where a file is written once, the first; otherwise the last."""
    start = threading.Barrier(8, timeout=60)

    def wrote(number: int) -> list[int]:
        won = []
        for turn in range(50):
            start.wait()
            with contextlib.suppress(FileExistsError):
                write(tmp_path / f"{turn}", bytes([number]) * 32)
                won.append(turn)
            assert len((tmp_path / f"{turn}").read_bytes()) == 32
        return won

    with ThreadPoolExecutor(8) as threads:
        won = list(threads.map(wrote, range(8)))
    files = sorted(tmp_path.iterdir(), key=lambda path: int(path.name))
    assert [path.name for path in files] == [str(turn) for turn in range(50)]
    for turn, path in enumerate(files):
        winners = [number for number in range(8) if turn in won[number]]
        assert path.read_bytes() in [bytes([number]) * 32 for number in winners]
        assert len(winners) == (1 if write is write_once else 8)
