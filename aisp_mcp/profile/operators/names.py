"""Names of the arguments of torch's operators, from the declarations that torch ships (torchgen).

torch itself is not imported: that takes seconds.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from aisp_mcp.profile.operators.aten import DTYPES

DECLARATIONS = "packaged/ATen/native/native_functions.yaml"


def of_arguments(name: str, types: Sequence[str]) -> list[str]:
    """The argument names of an operator such as aten::mm, of the overload that takes these types as Kineto writes them.
    Empty if it is not declared, or torch is not installed.
    """
    space, _, operator = name.partition("::")
    if space != "aten":
        return []
    for formal in re.findall(rf"^- func: {re.escape(operator)}(?:\.\w+)?\((.*)\) -> ", _declarations(), re.MULTILINE):
        declared = [one.partition("=")[0].rsplit(" ", 1) for one in formal.split(", ") if one not in ("", "*")]
        if len(declared) == len(types) and all(
            _fits(formal_type, kind) for (formal_type, _), kind in zip(declared, types, strict=True)
        ):
            return [name for _, name in declared]
    return []


def _fits(formal: str, kind: str) -> bool:
    is_tensor = formal.startswith("Tensor") and "[]" not in formal
    return is_tensor == (kind in DTYPES) or (kind == "" and "?" in formal)


@cache
def _declarations() -> str:
    found = find_spec("torchgen")
    for folder in (found.submodule_search_locations or ()) if found else ():
        if (file := Path(folder, DECLARATIONS)).is_file():
            return file.read_text("utf-8")
    return ""
