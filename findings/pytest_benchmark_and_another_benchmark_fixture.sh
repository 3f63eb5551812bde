#!/usr/bin/env bash
# pytest-benchmark 5 ends the whole session where a conftest defines a fixture named `benchmark` of its own.
#
# Seen on 2026-11-29 with pytest 9.2.0, Python 3.11: with pytest-benchmark 4.0.0 the test passes. With 5.3.1 (and by its
# source since 5.0.0) the hook that writes a test's report raises TypeError for a value of that fixture that is no
# BenchmarkFixture. pytest takes an error in this hook for its own: it prints INTERNALERROR, exits with 3, and runs no
# further test. `-p no:benchmark` avoids it. aisp's own plugin replaces the fixture and gives way to this check.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
cat > conftest.py <<'END'
import pytest


@pytest.fixture
def benchmark():
    return lambda function: function()
END
cat > test_sums.py <<'END'
def test_sum(benchmark):
    assert benchmark(lambda: sum(range(10))) == 45


def test_that_has_no_fixture():
    assert True
END
python3 -m venv env
for version in 4.0.0 5.3.1; do
  env/bin/pip install -q --disable-pip-version-check pytest==9.2.0 "pytest-benchmark==$version"
  code=0
  env/bin/python -m pytest -q -p no:cacheprovider > "$version.txt" 2>&1 || code=$?
  echo "pytest-benchmark $version: exit $code, $(tail -n 1 "$version.txt")"
  case $version in
    4.0.0) [ "$code" = 0 ] && grep -q "2 passed" "$version.txt" ;;
    5.3.1) [ "$code" = 3 ] && grep -q "INTERNALERROR> TypeError: unexpected type for .benchmark." "$version.txt" &&
      ! grep -q "passed" "$version.txt" ;;
  esac || { echo "The behaviour has changed." >&2; exit 1; }
done
echo "As described."
