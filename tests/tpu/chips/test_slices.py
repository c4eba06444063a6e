"""Slices as they are described, beside what the compiler says of them."""

import json
import os
import subprocess
import sys

import pytest

from ratchet.tpu.chips import CHIPS
from ratchet.tpu.compiler.environment import environment

ASK = """
import json, sys
from jax.experimental import topologies
for name in sys.argv[1:]:
    devices = topologies.get_topology_desc(platform="tpu", topology_name=name).devices
    print(json.dumps([[one.id, [one.core_on_chip, *one.coords]] for one in devices]))
"""


@pytest.mark.parametrize("chip", [chip for chip in CHIPS.values() if chip.links], ids=lambda chip: chip.name)
def test_devices_are_numbered_and_joined_as_the_compiler_has_them(chip):
    asked = [sys.executable, "-c", ASK, *(one.topology for one in chip.slices)]
    alone = {**os.environ, **environment(chip, None)}
    answered = subprocess.run(asked, capture_output=True, text=True, check=True, env=alone, timeout=120)
    for one, line in zip(chip.slices, answered.stdout.splitlines(), strict=True):
        places = dict(json.loads(line))
        assert sorted(places) == list(range(one.chips)), one.topology
        for source, target in chip.ici(one.chips).links():
            apart = [abs(a - b) for a, b in zip(places[source], places[target], strict=True)]
            assert sum(apart) == 1, f"{one.topology}: {source} and {target} have a link, and are {apart} apart"
