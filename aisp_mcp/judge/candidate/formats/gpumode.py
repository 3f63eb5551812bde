"""GPU MODE: `reference.py` (ref_kernel, generate_input) and a submission (custom_kernel)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from aisp_mcp.judge.candidate import adapted
from aisp_mcp.judge.protocol.module_loader import flatten


class Reference(adapted.Reference):
    """The problem's ref_kernel, with inputs from its generate_input."""

    def __init__(self, folder: Path, given: Mapping[str, Any], arguments: Any = None) -> None:
        super().__init__(folder, arguments)
        self.given = dict(given)
        self.module = adapted.load(folder / "reference.py", "reference")
        self.buffers = _buffers(arguments)
        self.allocated: set[int] = set()

    def draw(self) -> Any:
        """The data of one call; the row's seed is replaced."""
        import torch

        given = dict(self.given)
        if "seed" in inspect.signature(self.module.generate_input).parameters:
            given["seed"] = int(torch.randint(0, 1 << 31, ()))
        with _Allocated() as allocated:
            data = self.module.generate_input(**given)
        self.allocated = allocated.addresses
        return data

    def named(self, arguments: Any, tensors: dict[str, Any]) -> Any:
        """Name the tensors of the data; memory for the output is a buffer, not an input."""
        named = super().named(arguments, tensors)
        if self.arguments is None and not any(tensor.is_meta for tensor in tensors.values()):
            self.buffers = self._found(named, tensors)
        for name in self.buffers:
            tensors.pop(name, None)
        return _with_buffers(named, self.buffers)

    def _found(self, named: Any, tensors: Mapping[str, Any]) -> dict[str, adapted.Buffer]:
        """Memory that the recipe allocates without writing to it, as large as an output, whose values change no output.
        Reference and submission may write to it or not.
        """
        import torch

        def outputs(values: Mapping[str, Any]) -> list[Any]:
            copies = {name: tensor.clone() for name, tensor in values.items()}
            return [tensor.clone() for _, tensor in flatten(self.module.ref_kernel(adapted.build(named, copies)))]

        possible = [name for name, tensor in tensors.items() if tensor.data_ptr() in self.allocated]
        first = outputs(tensors) if possible and len(tensors) > 1 else []
        buffers = {}
        for name in possible:
            tensor = tensors[name]
            if not any(each.numel() == tensor.numel() for each in first):
                continue
            other = outputs({**tensors, name: torch.ones_like(tensor)})
            if all(torch.equal(a, b) for a, b in zip(first, other, strict=True)):
                buffers[name] = adapted.Buffer(tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))
        return buffers if len(buffers) < len(tensors) else {}

    def notes(self) -> tuple[str, ...]:
        """Disclose which tensors are memory for outputs."""
        return (f"memory for the output, new in every call: {', '.join(self.buffers)}",) if self.buffers else ()

    def run(self, **tensors: Any) -> Any:
        output = self.module.ref_kernel(adapted.build(self.arguments, tensors))
        return _as_buffer(output, self.buffers, tensors)


class _Allocated:
    """Context that records the addresses of tensors that a recipe allocates without drawing them."""

    def __init__(self) -> None:
        self.addresses: set[int] = set()

    def __enter__(self) -> _Allocated:
        import torch
        from torch.overrides import TorchFunctionMode

        makers = [torch.empty, torch.zeros, torch.empty_like, torch.zeros_like]
        makers += [torch.Tensor.new_empty, torch.Tensor.new_zeros]
        addresses = self.addresses

        class Mode(TorchFunctionMode):  # type: ignore[misc,unused-ignore]
            def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                result = func(*args, **(kwargs or {}))
                if func in makers:
                    addresses.add(result.data_ptr())
                return result

        self._mode = Mode()
        self._mode.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._mode.__exit__(*error)


class Candidate:
    """custom_kernel of a submission. function: that itself, instead of the name of its file."""

    def __init__(
        self, folder: Path, file: str = "", arguments: Any = None, function: Callable[[Any], Any] | None = None
    ) -> None:
        self.function = function or adapted.load(folder / file, "submission").custom_kernel
        self.arguments, self.buffers = arguments, _buffers(arguments)

    def prepare(self, params: dict[str, Any], _: dict[str, Any]) -> dict[str, Any]:
        """Return nothing: there are no static tensors."""
        return params

    def run(self, **tensors: Any) -> Any:
        return _as_buffer(self.function(adapted.build(self.arguments, tensors)), self.buffers, tensors)


def _as_buffer(output: Any, buffers: Mapping[str, adapted.Buffer], tensors: Mapping[str, Any]) -> Any:
    """A single output in the shape and type of the buffer provided for it, whether or not it was used."""
    import torch

    if len(buffers) != 1 or not isinstance(output, torch.Tensor):
        return output
    buffer = next(iter(buffers.values()))
    return output.reshape(buffer.shape).to(buffer.kind(tensors)) if output.numel() == buffer.size else output


def _with_buffers(named: Any, buffers: Mapping[str, adapted.Buffer]) -> Any:
    """The structure with its slots replaced by buffers."""
    if isinstance(named, adapted.Slot):
        return buffers.get(named.name, named)
    if isinstance(named, tuple | list):
        return type(named)(_with_buffers(each, buffers) for each in named)
    return {key: _with_buffers(each, buffers) for key, each in named.items()} if isinstance(named, dict) else named


def _buffers(arguments: Any, name: str = "input") -> dict[str, adapted.Buffer]:
    """The buffers of a structure, by the names that their slots would have."""
    if isinstance(arguments, adapted.Buffer):
        return {name: arguments}
    items: Any = ()
    if isinstance(arguments, tuple | list):
        items = enumerate(arguments)
    elif isinstance(arguments, dict):
        items = arguments.items()
    return {key: buffer for at, each in items for key, buffer in _buffers(each, f"{name}_{at}").items()}
