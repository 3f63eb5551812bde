"""The cluster examples: a manifest against Kubernetes' own schema, and the ReFrame test, where those are installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

EXAMPLES = Path(__file__).parents[2] / "examples" / "cluster"


def manifest() -> dict[str, Any]:
    return dict(yaml.safe_load((EXAMPLES / "kubernetes-job.yaml").read_text("utf-8")))


def test_the_manifest_is_valid_by_the_schema_of_kubernetes() -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="pip install kubernetes-validate")
    validate.validate(manifest(), "1.29", strict=True)
    with pytest.raises(validate.ValidationError):
        validate.validate({**manifest(), "spec": {"backofLimit": 0}}, "1.29", strict=True)


def test_the_pod_is_guaranteed_and_its_volumes_exist() -> None:
    spec = manifest()["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert container["resources"]["requests"] == container["resources"]["limits"]
    assert {volume["name"] for volume in container["volumeMounts"]} == {volume["name"] for volume in spec["volumes"]}
    assert "/dev/shm" in [mount["mountPath"] for mount in container["volumeMounts"]]
    assert (manifest()["spec"]["backoffLimit"], spec["restartPolicy"]) == (0, "Never")  # a verdict is not tried again


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("reframe") is None, reason="pip install reframe-hpc")
def test_reframe_takes_the_test(tmp_path: Path) -> None:
    shutil.copy(EXAMPLES / "reframe_aisp.py", tmp_path)
    words = ["reframe", "--prefix", str(tmp_path), "-c", "reframe_aisp.py", "--dry-run"]
    env = {**os.environ, "HOME": str(tmp_path)}
    done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout
    script = next((tmp_path / "stage").rglob("rfm_job.sh")).read_text("utf-8")
    assert "aisp bench run --targets ch07:row_sum --preset default --json" in script
