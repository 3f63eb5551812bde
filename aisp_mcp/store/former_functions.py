"""What runs of functions stored by earlier versions compared, read from the sources that they kept."""

from __future__ import annotations

import ast
import json
from pathlib import Path

from aisp_mcp.judge.functions import identity


def identified(home: Path, run_id: str, body: str) -> str:
    """The document with the identity of its target; as it is if the run's sources are gone."""
    run = json.loads(body)
    for comparison in run["comparisons"]:
        disclosed = comparison.get("disclosed") or {}
        label = "_".join(filter(None, (comparison["target"], comparison.get("candidate"))))
        folder = home / "runs" / run_id / "sources" / label.replace(":", "-").replace("/", "-")
        function = comparison["target"].rpartition(":")[2]
        try:
            digest = identity.of_baseline(_source(folder).read_text("utf-8"), function)
            known_by = identity.of_target(comparison["target"], digest, disclosed.get("inputs", ""))
        except (OSError, ValueError, SyntaxError, StopIteration):
            continue
        comparison["disclosed"] = {**disclosed, "baseline_function": digest, "identity": known_by}
    return json.dumps(run)


def _source(folder: Path) -> Path:
    """The kept copy of the baseline's file, which the pair's specification names. Raises StopIteration."""
    tree = ast.parse((folder / "baseline.py").read_text("utf-8"))
    texts = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str))
    return folder / "baseline_source" / Path(next(text for text in texts if "/baseline_source/" in text)).name
