"""``ratchet tune TARGET --shapes captured.json NAME=VALUES…``"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ratchet.commands.options import json_option, knobs_argument, target_options
from ratchet.commands.targets import Compilers, Version, folder_for, target_of, written
from ratchet.exam.candidate import target as targets
from ratchet.exam.candidate.target import Case, Target
from ratchet.exam.measure import devices
from ratchet.kernelfile.knobs import choices, points
from ratchet.loop.compare import ModelledLatency, compare
from ratchet.process import paths
from ratchet.tpu.compiler.environment import compiler_version
from ratchet.tune import captured
from ratchet.tune.fit import modelled, ranked, shortlist
from ratchet.tune.tables import python_module, tokamax, tpu_inference
from ratchet.values import Point
from ratchet.values.points import Trial, Tuned
from ratchet.values.status import Refusal, Status
from ratchet.view.document import dumps
from ratchet.view.points import shortlist_document, shortlist_text, trial_line, tune_document, tune_text

DICTIONARY, PLAIN, SHORTLIST = "tuned.py", "tuned.json", "shortlist.json"


def tune_options(parser: argparse.ArgumentParser) -> None:
    """A target and its knobs, the shapes of its calls, and where the tables go."""
    target_options(parser)
    knobs_argument(parser)
    parser.add_argument("--shapes", type=Path, metavar="FILE.json", help="its calls, as ratchet.capture wrote them")
    parser.add_argument("--out", type=Path, metavar="DIR", help="write the tables there: JSON and a Python dictionary")
    parser.add_argument("--tokamax", metavar="OP", help="also as tokamax's cache of this op, such as pallas_tpu_rope")
    parser.add_argument(
        "--tpu-inference-key", metavar="TEMPLATE", help="also as a table of tpu-inference: $x.0,$w.0,$x.dtype"
    )
    parser.add_argument("--tpu-inference-value", metavar="TEMPLATE", help="its values: [$BM, $BN]")
    parser.add_argument("--on", choices=("tpu",), help="also write the points that a TPU has to decide between")
    json_option(parser)


def tune_command(options: argparse.Namespace, *, say: Callable[[str], None]) -> int:
    """Model every point that fits for every call and chip; the exit code is 0 where each has a best one."""
    if bool(options.tpu_inference_key) != bool(options.tpu_inference_value):
        raise Refusal(Status.USAGE, "--tpu-inference-key and --tpu-inference-value go together: give both or none")
    target, cases = _called(options)
    axes = [choices(text) for text in options.knobs]
    wanted = points(axes)
    if options.out:
        folder_for(options.out / DICTIONARY)
    rows: list[Tuned] = []
    with Compilers.start() as compilers:
        for case in cases:
            version = Version.of(target, case, [name for name, _ in axes], compilers)
            rows.append(_tuned(version, wanted, say))
    if options.out:
        for path in _write(rows, options, target):
            say(f"written: {path}")
    if options.json:
        print(dumps(tune_document(rows, target=str(target))))
    else:
        print(tune_text(rows, [name for name, _ in axes], target=str(target)))
        if options.on:
            print(shortlist_text(rows, attached=devices.tpu(), path=options.out / SHORTLIST))
    failed = next((row for row in rows if row.best is None), None)
    return failed.trials[0].status.exit_code if failed else Status.PASS.exit_code


def _called(options: argparse.Namespace) -> tuple[Target, tuple[Case, ...]]:
    """The target and its calls, one for each chip that was asked for. Raises Refusal as ``target_of``."""
    if options.on and not options.out:
        raise Refusal(Status.USAGE, "--on tpu writes a shortlist: say where with --out DIR")
    if options.shapes is None:
        return target_of(options)
    if options.inputs or options.input:
        raise Refusal(Status.USAGE, "--shapes and --input say the same twice: give one of them")
    target = targets.parse(written(options))
    calls = captured.cases(options.shapes, target)
    chips = options.chip or [calls[0].chip]
    return target, tuple(replace(call, chip=chip) for call in calls for chip in chips)


def _tuned(version: Version, wanted: list[dict[str, Any]], say: Callable[[str], None]) -> Tuned:
    case = version.case

    def tried(point: Point) -> Trial:
        trial = _trial(version, point)
        say(trial_line(trial, chip=case.chip))
        return trial

    default = _trial(version, {})
    trials = ranked(modelled(wanted, case.chip, tried))
    return Tuned(
        inputs=case.inputs,
        generator=case.generator,
        arguments=case.others.get("arguments", ()),
        options=case.options,
        calls=case.others.get("calls", 0),
        chip=case.chip,
        compiler=compiler_version(),
        trials=trials,
        default=default if default.latency_ms is not None else None,
        near_best=shortlist(trials, _same, least=1),
        shortlist=shortlist(trials, _same),
        constants=version.constants,
    )


def _trial(version: Version, point: Point) -> Trial:
    """A point, compiled and modelled."""
    explanation = version.explained(point, modelled=True)
    timeline = explanation.timeline
    return Trial(
        point=point,
        status=explanation.status,
        reason=explanation.reason,
        compiled=True,
        latency_ms=timeline.latency_ms if timeline else None,
        wait_ms=timeline.dma_wait_cycles / timeline.clock_hz * 1e3 if timeline else 0.0,
        band=explanation.band,
        vmem=explanation.fullest,
    )


def _same(one: Trial, other: Trial) -> bool:
    """Whether the model does not rank two points reliably."""
    return one.latency_ms == other.latency_ms or compare(_latency(one), _latency(other)).same


def _latency(trial: Trial) -> ModelledLatency:
    assert trial.latency_ms is not None
    assert trial.band is not None
    low, high = trial.band.low_ms, trial.band.high_ms
    return ModelledLatency(latency=trial.latency_ms, wait=trial.wait_ms, low=low, high=high)


def _write(rows: list[Tuned], options: argparse.Namespace, target: Target) -> list[Path]:
    """The tables, in every form that was asked for."""
    texts = {
        PLAIN: _json(tune_document(rows, target=str(target))),
        DICTIONARY: python_module(rows),
    }
    if options.tokamax:
        for folder, content in tokamax(rows).items():
            texts[f"tokamax/data/autotuning/{folder}/{options.tokamax}.json"] = _json(content)
    if options.tpu_inference_key:
        tables = tpu_inference(rows, options.tpu_inference_key, options.tpu_inference_value)
        for name, content in tables.items():
            texts[f"tpu_inference/{name}.json"] = _json(content)
    if options.on:
        texts[SHORTLIST] = _json(shortlist_document(rows, target=written(options)))
    for name, text in texts.items():
        path = options.out / name
        paths.make_folder(path.parent)
        paths.write(path, text.encode())
    return [options.out / name for name in texts]


def _json(document: Mapping[str, Any]) -> str:
    return dumps(document) + "\n"
