"""The ``backend_config`` of a kernel's custom call: read once, checked against what is known, written anew."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from typing import Any

from ratchet.values.status import Refusal, Status

_WORD = re.compile(r"[A-Za-z0-9_]{1,80}")
_Number = int | float | None
_COLOURS = [{"color": int, "operand_index": int, "shape_index": [int]}]
_CALL: Mapping[str, Any] = {
    "active_core_count": int,
    "allow_input_fusion": [bool],
    "body": str,
    "collective_id": int,
    "cost_estimate": {
        "bytes_accessed": _Number, "flops": _Number, "remote_bytes_transferred": _Number, "transcendentals": _Number,
    },
    "disable_bounds_checks": bool,
    "disable_semaphore_checks": bool,
    "has_communication": bool,
    "input_memory_space_colors": _COLOURS,
    "internal_scratch_in_bytes": int,
    "needs_hlo_passes": bool,
    "needs_layout_passes": bool,
    "output_memory_space_colors": _COLOURS,
    "serialization_format": int,
    "shape_invariant_numerics": bool,
    "skip_device_barrier": bool,
    "vmem_limit_bytes": int,
}  # fmt: skip
_AROUND: Mapping[str, Any] = {
    "custom_call_config": _CALL,
    "device_type": str,
    "flag_configs": [
        {"flag_type": str, "value": {"boolean_value": bool, "double_value": _Number, "integer_value": int}}
    ],
    "megachip_parallelism_config": {"cores": [str]},
    "scoped_memory_configs": [{"memory_space": int, "offset": int, "size": int}],
    "sparse_core_config": {"comp_env": {"backend_opt_level": str}, "core_ids": [str], "tiling": str},
}
"""What the locked jax writes (``CustomCallBackendConfig.to_json``), key by key with the type of its value; the compiler
reads other spellings, too."""

_SUPPORTED: Mapping[str, tuple[object, ...]] = {
    "needs_hlo_passes": (None, False),
    "needs_layout_passes": (True,),
    "serialization_format": (1,),
}
"""What decides how the compiler reads the module, with the values for which it is read here in the same way; None: left
out. All other keys say where an operand is, what is checked, or how much memory and time there is: the values stay."""
SPARSE_CORE = "DEVICE_TYPE_SPARSECORE"
_EXECUTED = frozenset({"custom_call_config", "flag_configs", "scoped_memory_configs"})
_OF_SPARSE_CORES = frozenset({"device_type", "megachip_parallelism_config", "sparse_core_config"})
"""Which cores a kernel is for, and how its memory is tiled there: it is executed by its module, which says both."""
_SCHEDULING_FLAGS = frozenset({"XLA_TPU_FORCE_LP_LLO_SCHEDULER"})
"""Flags of the compiler's that move instructions and change none."""


def read(text: str) -> tuple[bytes, dict[str, Any]]:
    """The serialised Mosaic module of a call, and its configuration without it.

    Raises:
        Refusal: ``CANNOT_VERIFY`` for anything but the one spelling that the locked jax writes: an unknown or repeated
            key, a value of another type, a text that is no plain word.
    """
    try:
        config = json.loads(text, object_pairs_hook=_object, parse_constant=_no_constant)
        call = config["custom_call_config"]
        body = base64.b64decode(call["body"], validate=True)
    except (KeyError, TypeError, ValueError, RecursionError, binascii.Error) as error:
        raise _refusal(f"it cannot be read ({type(error).__name__}: {str(error)[:80]!r})") from None
    _check(config, _AROUND, "")
    rest = {**config, "custom_call_config": {key: value for key, value in call.items() if key != "body"}}
    return body, rest


def check_executed(config: Mapping[str, Any]) -> None:
    """Refuse a configuration that makes the compiler read the module otherwise than it is executed for its values.

    Raises:
        Refusal: ``CANNOT_VERIFY`` with the key.
    """
    known, supported = _EXECUTED, _SUPPORTED
    if config.get("device_type") == SPARSE_CORE:
        known, supported = _EXECUTED | _OF_SPARSE_CORES, {**_SUPPORTED, "needs_layout_passes": (None, False, True)}
    call = config["custom_call_config"]
    odd = [f"{key} = {config[key]}" for key in config if key not in known]
    odd += [f"{key} = {call.get(key)}" for key, values in supported.items() if call.get(key) not in values]
    flags = [str(one.get("flag_type")) for one in config.get("flag_configs", ())]
    odd += [f"the flag {flag}" for flag in flags if flag not in _SCHEDULING_FLAGS]
    if odd:
        raise _refusal(f"with {odd[0]:.120} this judge cannot execute the kernel for its values; leave it out", hint="")


def write(body: bytes, config: Mapping[str, Any]) -> str:
    """The text of a ``backend_config``: ``config`` of :func:`read` with ``body`` in it."""
    call = {"body": base64.b64encode(body).decode(), **config["custom_call_config"]}
    return json.dumps({**config, "custom_call_config": call})


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a key is repeated")
    return fields


def _no_constant(word: str) -> float:
    raise ValueError(f"{word} is no number")


def _check(value: object, form: Any, name: str) -> None:
    """Refuse a value of another form: a type, a list of one form, or a table of them."""
    if isinstance(form, Mapping) and isinstance(value, dict):
        for key, inner in value.items():
            if key not in form:
                raise _refusal(f"it has the key {key[:80]!r}, which is not known")
            _check(inner, form[key], key)
    elif isinstance(form, list) and isinstance(value, list):
        for inner in value:
            _check(inner, form[0], name)
    elif isinstance(form, Mapping | list) or not isinstance(value, form) or (type(value) is bool and form is not bool):
        raise _refusal(f"{name or 'it'} is {value!r:.80}, which is of another type than it is known with")
    elif form is str and name != "body" and not _WORD.fullmatch(str(value)):
        raise _refusal(f"it holds the text {str(value)[:80]!r}, wanted a plain word")


def _refusal(what: str, hint: str = "; export it with the locked jax") -> Refusal:
    return Refusal(Status.CANNOT_VERIFY, f"the configuration of a tpu_custom_call: {what}{hint}")
