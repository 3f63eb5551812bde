"""Allocator snapshots as PyTorch writes them: the same answer as from JSON, and nothing in them is ever called."""

import gzip
import json
import pickle
import subprocess
import sys

import oracle_tools
import pytest

from aisp_mcp.errors import AispError
from aisp_mcp.profile import load

CAPTURE = oracle_tools.DATA / "train_step_h200.memory.json.gz"


@pytest.fixture(scope="module")
def memory():
    return load.load(CAPTURE).memory


@pytest.mark.parametrize(("protocol", "compress"), [(2, bytes), (4, bytes), (5, gzip.compress)])
def test_a_pickle_says_what_json_says(protocol, compress, memory, tmp_path):
    document = json.loads(gzip.decompress(CAPTURE.read_bytes()))
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(compress(pickle.dumps(document, protocol)))
    profile = load.load(path)
    assert profile.memory == memory
    assert profile.memory[0].at_peak[0].stack


class _Call:
    """Pickles as a call of os.system."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        import os

        return os.system, (f"touch {self.path}",)


def _alive(depth):
    rows = []
    for _ in range(depth):
        rows = [rows, rows]
    return rows


def _circle():
    rows = {"device_traces": []}
    rows["device_traces"].append(rows)
    return rows


HOSTILE = {
    "harmless global": lambda _: pickle.dumps({"device_traces": [[pickle.PickleBuffer]]}),
    "instance": lambda _: b"\x80\x02(c__builtin__\nobject\no.",
    "extension": lambda _: b"\x80\x02\x82\x01.",
    "persistent": lambda _: b"\x80\x02Pname\n.",
    "memo of gigabytes": lambda _: b"\x80\x04Nr\xff\xff\xff\x7f.",
    "text of gigabytes": lambda _: b"\x80\x04\x8d\xff\xff\xff\xff\x7f\x00\x00\x00x.",
    "doubled 60 times": lambda _: pickle.dumps(_alive(60)),
    "cut short": lambda _: pickle.dumps({"device_traces": [[]]})[:-5],
    "no snapshot": lambda _: pickle.dumps({"weights": [1.0]}),
}


# The reader's process for each of many files, forked from one that has its modules.
_READERS = """
import os, sys
from aisp_mcp.profile.readers import pickles, snapshot
for path in sys.argv[1:]:
    if not (child := os.fork()):
        sys.argv[1:] = [snapshot.__name__, path]
        os._exit(pickles.main())
    print(path, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
REFUSED = 3


def _exit_codes(paths):
    argv = [sys.executable, "-P", "-c", _READERS, *map(str, paths)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=55)
    return dict(line.split() for line in done.stdout.splitlines()), done.stderr


def test_hostile_pickles_are_refused(tmp_path):
    for name, make in HOSTILE.items():
        tmp_path.joinpath(name.replace(" ", "_")).write_bytes(make(tmp_path))
    codes, _ = _exit_codes(tmp_path.iterdir())
    assert codes == {str(path): str(REFUSED) for path in tmp_path.iterdir()}


def test_a_snapshot_in_itself_is_harmless(tmp_path):
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps(_circle()))
    assert load.load(path).memory[0].events == 0


def test_a_call_in_a_pickle_does_not_happen(tmp_path):
    marker = tmp_path / "called"
    paths = [tmp_path / f"{protocol}.pickle" for protocol in (2, 3, 4, 5)]
    for path in paths:
        path.write_bytes(pickle.dumps({"device_traces": [_Call(marker)]}, int(path.stem)))
    codes, words = _exit_codes(paths)
    assert codes == {str(path): str(REFUSED) for path in paths}
    assert words.count("names the global") == len(paths)
    with pytest.raises(AispError, match="names the global") as caught:
        load.load(paths[0])
    assert caught.value.code == "BAD_PROFILE"
    assert not marker.exists()
    for path in paths:
        pickle.loads(path.read_bytes())  # the attack is real
        assert marker.exists()
        marker.unlink()
