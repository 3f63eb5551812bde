"""Allocator snapshots as PyTorch writes them: the same answer as from JSON, and nothing in them is ever called."""

import gzip
import json
import pickle

import oracle_tools
import pytest

from aisp_mcp.errors import AispError
from aisp_mcp.profile import load

CAPTURE = oracle_tools.DATA / "train_step_h200.memory.json.gz"


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_a_pickle_says_what_json_says(protocol, tmp_path):
    document = json.loads(gzip.decompress(CAPTURE.read_bytes()))
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps(document, protocol))
    profile = load.load(path)
    assert profile.memory == load.load(CAPTURE).memory
    assert profile.memory[0].at_peak[0].stack
    path.write_bytes(gzip.compress(path.read_bytes(), 1))
    assert load.load(path).memory == profile.memory


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
    "in itself": lambda _: pickle.dumps(_circle()),
    "cut short": lambda _: pickle.dumps({"device_traces": [[]]})[:-5],
    "no snapshot": lambda _: pickle.dumps({"weights": [1.0]}),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_pickles_are_refused_or_harmless(name, tmp_path):
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(HOSTILE[name](tmp_path))
    if name == "in itself":
        assert load.load(path).memory[0].events == 0
        return
    with pytest.raises(AispError) as caught:
        load.load(path)
    assert caught.value.code == "BAD_PROFILE"


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_call_in_a_pickle_does_not_happen(protocol, tmp_path):
    marker = tmp_path / "called"
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps({"device_traces": [_Call(marker)]}, protocol))
    with pytest.raises(AispError, match="names the global") as caught:
        load.load(path)
    assert caught.value.code == "BAD_PROFILE"
    assert not marker.exists()
    pickle.loads(path.read_bytes())  # the attack is real
    assert marker.exists()
