"""With which shapes and dtypes a function is called: recorded while a program runs, kept as JSON.

    with ratchet.capture("pkg.kernels:attend", to="captured.json"):
        serve(requests)

A call is recorded before it is made, so that it counts where it fails, as without a TPU. A function that is called
inside ``jax.jit`` is recorded when the caller is traced, not when compiled code runs again. Standard library only.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ratchet.process import paths
from ratchet.values.status import Refusal, Status

_PLAIN = (bool, int, float, str, type(None))
_FORMAT = 1


@contextlib.contextmanager
def capture(*functions: str, to: str | Path) -> Iterator[None]:
    """While the block runs, every call of ``functions`` is recorded; at its end the file holds them.

    Wherever a module of the process holds one of the functions by name, the recorder takes its place for as long.

    Args:
        functions: ``package.module:function``, of modules that are imported.
        to: a JSON file. What it holds already stays, and calls are added up.

    Raises:
        Refusal: ``USAGE`` for no such function, a file that is something else, or a place where none can be.
    """
    path = Path(to)
    if paths.is_folder(path) or not paths.is_folder(path.parent):  # before hours of a program that is recorded
        what = "is a folder" if paths.is_folder(path) else "is in no folder that is there"
        raise Refusal(Status.USAGE, f"{path} {what}: wanted a file to write calls to")
    known = read(path) if paths.is_file(path) else {}
    replaced: list[tuple[dict[str, Any], str, Any]] = []
    recorders = [(_function(name), name) for name in functions]
    try:
        for function, name in recorders:
            recorder = _Recorder(function, name, known)
            for module in list(sys.modules.values()):
                held = getattr(module, "__dict__", {})
                for attribute in [key for key, value in held.items() if value is function]:
                    replaced.append((held, attribute, function))
                    held[attribute] = recorder
        yield
    finally:
        for held, attribute, function in replaced:
            held[attribute] = function
        paths.write(path, (json.dumps({"format": _FORMAT, "calls": list(known.values())}, indent=1) + "\n").encode())


class _Recorder:
    """Calls a function and records with what; in all else it is that function."""

    def __init__(self, function: Callable[..., Any], name: str, known: dict[str, dict[str, Any]]) -> None:
        functools.update_wrapper(self, function)
        self._function, self._name, self._known = function, name, known

    def __call__(self, *args: Any, **options: Any) -> Any:
        with contextlib.suppress(TypeError):  # arguments that are not the function's: it says so itself
            entry: dict[str, Any] = {"function": self._name, **_call(self._function, args, options)}
            self._known.setdefault(json.dumps(entry, sort_keys=True), {**entry, "calls": 0})["calls"] += 1
        return self._function(*args, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._function, name)


def _function(name: str) -> Callable[..., Any]:
    module, _, attribute = name.partition(":")
    function = getattr(sys.modules.get(module), attribute, None) if attribute else None
    if not callable(function):
        message = f"{name!r:.80} is no function of an imported module: wanted package.module:function, imported first"
        raise Refusal(Status.USAGE, message)
    return function


def _call(function: Callable[..., Any], args: tuple[Any, ...], options: Mapping[str, Any]) -> dict[str, Any]:
    """Arrays by shape and dtype, plain values as they are; or why a command line could not make this call again."""
    bound = inspect.signature(function).bind(*args, **options)
    given = list(_flat(bound))
    arrays = [(name, value) for name, value in given if hasattr(value, "shape") and hasattr(value, "dtype")]
    plain = {name: value for name, value in given if isinstance(value, _PLAIN)}
    odd = next((name for name, value in given if name not in plain and name not in dict(arrays)), None)
    if odd is not None:
        return {"not captured": f"{odd} is neither an array nor a number, a truth value, a text or None"}
    if [name for name, _ in given[: len(arrays)]] != [name for name, _ in arrays]:
        return {"not captured": "an argument that is no array is before one: wanted all arrays first"}
    inputs = [f"{value.dtype.name}[{','.join(map(str, value.shape))}]" for _, value in arrays]
    return {"inputs": inputs, "arguments": [name for name, _ in arrays], "options": plain}


def _flat(bound: inspect.BoundArguments) -> Iterator[tuple[str, Any]]:
    """Arguments in the order of the parameters; those of ``*args`` numbered, those of ``**options`` by name."""
    kinds = {name: parameter.kind for name, parameter in bound.signature.parameters.items()}
    for name, value in bound.arguments.items():
        if kinds[name] is inspect.Parameter.VAR_POSITIONAL:
            yield from ((f"{name}{place}", one) for place, one in enumerate(value))
        elif kinds[name] is inspect.Parameter.VAR_KEYWORD:
            yield from value.items()
        else:
            yield name, value


def read(path: Path) -> dict[str, dict[str, Any]]:
    """The calls of a file by what is the same in equal ones. Raises Refusal ``USAGE`` for another file."""
    try:
        document = json.loads(paths.read(path).decode())
        calls = [dict(call) for call in document["calls"]]
        if document["format"] != _FORMAT or not all(map(_is_call, calls)):
            raise ValueError
    except (OSError, ValueError, KeyError, TypeError):
        raise Refusal(Status.USAGE, f"{path} is no file of captured calls: ratchet.capture writes one") from None
    return {json.dumps({k: v for k, v in call.items() if k != "calls"}, sort_keys=True): call for call in calls}


def _is_call(call: Mapping[str, Any]) -> bool:
    """Whether an entry has what ``_call`` and ``_record`` write."""
    texts = [call["function"], *call.get("inputs", [call.get("not captured")]), *call.get("arguments", [])]
    options = call.get("options", {})
    return (
        all(isinstance(one, str) for one in texts)
        and isinstance(call["calls"], int)
        and isinstance(options, dict)
        and len(call.get("inputs", [])) == len(call.get("arguments", []))
        and all(isinstance(one, _PLAIN) for one in options.values())
    )
