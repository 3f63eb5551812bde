"""Record the options of `vllm serve` or `sglang serve` from a released wheel, read as text: nothing of it is run.

pip download --no-deps --only-binary :all: vllm sglang
python validation/read_engine_options.py vllm-*.whl > results/vllm-options.json
python validation/read_engine_options.py sglang-*.whl > results/sglang-options.json
"""

from __future__ import annotations

import ast
import json
import sys
import zipfile
from collections.abc import Iterator

# Where each engine adds arguments: by calls of add_argument, or as annotated fields of its settings.
ARGUMENTS = {"vllm": ("vllm/engine/", "vllm/entrypoints/"), "sglang": ("sglang/srt/arg_groups/fields/",)}
# Options whose values are the alternatives of a type, and where that type is defined.
CHOICES = {
    "--quantization": ("vllm/model_executor/layers/quantization/__init__.py", "QuantizationMethods"),
    "--kv-cache-dtype": ("vllm/config/cache.py", "CacheDType"),
}


def texts(node: ast.AST | None) -> list[str]:
    """The texts in an expression."""
    words = [part.value for part in ast.walk(node) if isinstance(part, ast.Constant)] if node else []
    return [word for word in words if isinstance(word, str)]


def added(tree: ast.AST) -> Iterator[tuple[str, list[str]]]:
    """Names in calls of add_argument, without alternatives."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument":
            names = [name for word in node.args if isinstance(word, ast.Constant) for name in texts(word)]
            yield from ((name, []) for name in names if name.startswith("--"))


def fields(tree: ast.AST) -> Iterator[tuple[str, list[str]]]:
    """Options made of fields `name: A[type, Arg(...)]`, with their alternatives, except those kept from the line."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.annotation, ast.Subscript):
            continue
        calls = [part for part in ast.walk(node.annotation) if isinstance(part, ast.Call)]
        words = {word.arg: word.value for call in calls for word in call.keywords}
        if getattr(node.annotation.value, "id", "") == "A" and "no_cli" not in words:
            name = texts(words.get("cli_name")) or ["--" + ast.unparse(node.target).replace("_", "-")]
            listed = words.get("choices")
            yield name[0], texts(listed) if isinstance(listed, ast.List) else []


def alternatives(tree: ast.AST, name: str) -> list[str]:
    """Texts of `name = Literal[...]`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == name:
            return texts(node.value)
    raise SystemExit(f"{name} is not defined where it was")


def main() -> None:
    engine, version = sys.argv[1].rpartition("/")[2].split("-")[:2]
    read = fields if engine == "sglang" else added
    with zipfile.ZipFile(sys.argv[1]) as wheel:
        names = [name for name in wheel.namelist() if name.endswith(".py") and name.startswith(ARGUMENTS[engine])]
        found = dict(option for name in names for option in read(ast.parse(wheel.read(name))))
        values = {option: listed for option, listed in found.items() if listed}
        if engine == "vllm":
            values = {
                option: alternatives(ast.parse(wheel.read(file)), kind) for option, (file, kind) in CHOICES.items()
            }
    json.dump({engine: version, "options": sorted(found), "values": values}, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
