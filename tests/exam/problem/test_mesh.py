"""The mesh that a kernel file declares."""

import numpy as np
import pytest

from ratchet.exam.problem.mesh import plain, read
from ratchet.values import ArraySpec, Mesh
from ratchet.values.status import Refusal, Status
from tests.refusals import refused

INPUTS = (ArraySpec(shape=(16, 128), dtype="bfloat16"), ArraySpec(shape=(16, 1024, 128), dtype="bfloat16"))
DECLARED = {"mesh": {"chip": 4}, "input_shardings": [[], [None, "chip"]]}
MESH = Mesh(axes=(("chip", 4),), inputs=((), ((), ("chip",))))


def test_a_file_without_a_mesh_is_for_one_chip():
    assert read({"grid": [1]}, INPUTS) == Mesh()
    assert Mesh().chips == 1


def test_what_is_declared_is_read_and_written():
    assert read(DECLARED, INPUTS) == MESH
    assert read(plain(MESH), INPUTS) == MESH
    assert read(plain(Mesh()), INPUTS) == Mesh()
    assert MESH.chips == 4


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"mesh": ["chip"]}, "wanted a dict of axis names and sizes"),
        ({"mesh": {"chip": 0}}, "wanted a dict of axis names and sizes"),
        ({"mesh": {"chip": True}}, "wanted a dict of axis names and sizes"),
        ({"input_shardings": [[]]}, "has 1 entries, wanted one list for each of 2 inputs"),
        ({"input_shardings": 3}, "has a int entries"),
        ({"input_shardings": [[], [None, 3]]}, "wanted a list of None, axis names or lists"),
        ({"input_shardings": [[], [None, "core"]]}, "no axis 'core' in the mesh"),
        ({"input_shardings": [[], ["chip", "chip"]]}, "an axis is used twice"),
        ({"input_shardings": [[None] * 3, []]}, "3 dimensions for bfloat16[16,128]"),
        ({"mesh": {"chip": 3}}, "3 chips cannot share 1024 rows"),
    ],
)
def test_what_is_no_mesh_is_refused(changes, said):
    with refused(Status.CONTRACT) as caught:
        read(DECLARED | changes, INPUTS)
    assert said in caught.value.message


def test_all_disagreements_are_reported_at_once():
    with pytest.raises(Refusal, match=r"no axis 'a'.*no axis 'b'"):
        read(DECLARED | {"input_shardings": [["a"], ["b"]]}, INPUTS)


@pytest.mark.parametrize(
    "mesh",
    [
        MESH,
        Mesh(axes=(("x", 2), ("y", 2)), inputs=((), (("y",), ("x",)))),
        Mesh(axes=(("x", 2), ("y", 2)), inputs=((), ((), ("y", "x")))),
        Mesh(axes=(("x", 2), ("y", 2)), inputs=((), (("x", "y"),))),
    ],
)
def test_the_parts_of_all_chips_are_those_of_jax(mesh):
    """One device per place, as ``NamedSharding`` hands them out."""
    import jax

    names, sizes = zip(*mesh.axes, strict=True)
    abstract = jax.sharding.AbstractMesh(sizes, names, axis_types=(jax.sharding.AxisType.Auto,) * len(names))
    for number, spec in enumerate(INPUTS):
        sharding = jax.sharding.NamedSharding(abstract, jax.sharding.PartitionSpec(*mesh.inputs[number]))
        count = np.zeros(spec.shape, int)
        for place in range(mesh.chips):
            own = mesh.part(number, spec.shape, place)
            count[own] += 1
            assert count[own].shape == sharding.shard_shape(spec.shape)
        assert (count == count.flat[0]).all(), "every part is held equally often"
