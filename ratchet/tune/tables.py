"""Tuned blocks in the forms that others read: a Python dictionary, tokamax's cache, tpu-inference's tables. Pure.

tokamax keeps ``data/autotuning/DEVICE_KIND/op_name.json``: by the op's arguments, as JSON text, by the configuration,
as JSON text, how long it took. tpu-inference keeps ``tuned_data/KERNEL/TPU.json``, whose keys and values are each
kernel's own: the user gives both as templates.
"""

from __future__ import annotations

import json
import string
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ratchet.tpu.chips import CHIPS
from ratchet.values import ArraySpec
from ratchet.values.points import Tuned
from ratchet.values.status import Refusal, Status

SHORT_DTYPES = {
    **{f"{kind}{bits}": f"{kind[0]}{bits}" for kind in ("int", "uint") for bits in (4, 8, 16, 32, 64)},
    **{f"float{bits}": f"f{bits}" for bits in (16, 32, 64)},
    "bfloat16": "bf16",
}
"""What tokamax calls dtypes; those that are not here keep JAX's name."""


def python_module(rows: Sequence[Tuned]) -> str:
    """``TUNED``: by chip, inputs and options in words, the values of the knobs."""
    table = {
        (
            row.chip,
            *map(str, row.inputs),
            *(f"{name}={value!r}" for name, value in row.options.items()),
        ): dict(row.best.point)
        for row in rows
        if row.best is not None
    }
    entries = "".join(f"    {key!r}: {value!r},\n" for key, value in table.items())
    compilers = " and ".join(dict.fromkeys(row.compiler for row in rows if row.compiler)) or "nothing was modelled"
    head = f'"""Blocks by chip, inputs and options. Modelled, not measured: {compilers}."""\n'
    return f"{head}\nTUNED = {{\n{entries}}}\n"


def tokamax(rows: Sequence[Tuned]) -> dict[str, dict[str, Any]]:
    """By the name of a device's folder, the contents of an op's file. Times are modelled, and ``metadata`` says so.

    Raises:
      Refusal: ``USAGE`` where the op's arguments are not known by name.
    """
    made: dict[str, dict[str, Any]] = {}
    for row in rows:
        if row.best is None:
            continue
        if not row.arguments:
            raise Refusal(Status.USAGE, "tokamax's cache names arguments: capture the calls, and give --shapes")
        arrays = dict(zip(row.arguments, map(_short, row.inputs), strict=True))
        key = json.dumps({**arrays, **row.options}, separators=(",", ":"))
        times = {
            "compile_time_ms": 0.0,
            "lower_time_ms": 0.0,
            "evaluation_times_ms": [row.best.latency_ms],
            "metadata": {"modelled_by": "pallas-ratchet", "compiler": row.compiler},
        }
        folder = CHIPS[row.chip].device_kind.lower().replace(" ", "_")
        made.setdefault(folder, {})[key] = {json.dumps(dict(row.best.point), separators=(",", ":")): times}
    return made


def tpu_inference(rows: Sequence[Tuned], key: str, value: str) -> dict[str, dict[str, Any]]:
    """By the name of a TPU's file, its contents.

    Args:
        rows: what was tuned.
        key: a template; a slash begins a level: ``$x.0,$w.0,$x.1,$x.dtype``. An array is named by its parameter, or by
            its position; ``.0`` is its first size. Options and knobs by their names, ``$tpu`` is the generation.
        value: a template of JSON, such as ``[$BM, $BN, $BK]``.

    Raises:
      Refusal: ``USAGE`` for a name that there is not, or a value that is no JSON.
    """
    made: dict[str, dict[str, Any]] = {}
    for row in rows:
        if row.best is None:
            continue
        names = _names(row)
        *levels, last = _filled(key, names).split("/")
        level = made.setdefault(f"tpu_v{7 if row.chip == 'tpu7x' else row.chip.removeprefix('v')}", {})
        for name in levels:
            level = level.setdefault(name, {})
        text = _filled(value, names)
        try:
            level[last] = json.loads(text)
        except ValueError:
            raise Refusal(Status.USAGE, f"the value {text!r:.80} is no JSON, such as [$BM, $BN]") from None
    return made


class _Template(string.Template):
    idpattern = r"(?a:\w+(?:\.\w+)?)"


def _filled(template: str, names: Mapping[str, object]) -> str:
    try:
        return _Template(template).substitute(names)
    except KeyError as missing:
        message = f"{template!r:.60} names {missing}, wanted some of {', '.join(f'${name}' for name in names)}"
    except ValueError as error:
        message = f"{template!r:.60} is no template: {error}"
    raise Refusal(Status.USAGE, message[:600])


def _names(row: Tuned) -> dict[str, object]:
    """What templates may name."""
    made: dict[str, object] = {"tpu": CHIPS[row.chip].generation, "chip": row.chip}
    for place, spec in enumerate(row.inputs):
        for name in (str(place), *row.arguments[place : place + 1]):
            made |= {f"{name}.{axis}": side for axis, side in enumerate(spec.shape)}
            made[f"{name}.dtype"] = spec.dtype
    made |= row.options
    return made | (dict(row.best.point) if row.best else {})


def _short(spec: ArraySpec) -> str:
    return str(replace(spec, dtype=SHORT_DTYPES.get(spec.dtype, spec.dtype)))
