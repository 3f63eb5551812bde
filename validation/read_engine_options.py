"""Record the options of `vllm serve` from a released wheel, read as text: nothing of it is installed or imported.

pip download --no-deps --only-binary :all: vllm
python validation/read_engine_options.py vllm-*.whl > results/vllm-options.json
"""

from __future__ import annotations

import ast
import json
import sys
import zipfile
from collections.abc import Iterator

ARGUMENTS = ("vllm/engine/", "vllm/entrypoints/")
# Options whose values are the alternatives of a type, and where that type is defined.
CHOICES = {
    "--quantization": ("vllm/model_executor/layers/quantization/__init__.py", "QuantizationMethods"),
    "--kv-cache-dtype": ("vllm/config/cache.py", "CacheDType"),
}


def options(tree: ast.AST) -> Iterator[str]:
    """Names in calls of add_argument."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument":
            names = [word.value for word in node.args if isinstance(word, ast.Constant)]
            yield from (name for name in names if isinstance(name, str) and name.startswith("--"))


def alternatives(tree: ast.AST, name: str) -> list[str]:
    """Texts of `name = Literal[...]`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == name:
            return [part.value for part in ast.walk(node.value) if isinstance(part, ast.Constant)]
    raise SystemExit(f"{name} is not defined where it was")


def main() -> None:
    with zipfile.ZipFile(sys.argv[1]) as wheel:
        names = [name for name in wheel.namelist() if name.endswith(".py")]
        trees = {name: ast.parse(wheel.read(name)) for name in names if name.startswith(ARGUMENTS)}
        found = {option for tree in trees.values() for option in options(tree)}
        values = {option: alternatives(ast.parse(wheel.read(file)), kind) for option, (file, kind) in CHOICES.items()}
    version = sys.argv[1].rpartition("/")[2].split("-")[1]
    json.dump({"vllm": version, "options": sorted(found), "values": values}, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
