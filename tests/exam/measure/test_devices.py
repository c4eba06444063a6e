"""What is attached, and what it can do at most."""

import pytest

from ratchet.exam.measure import devices
from ratchet.tpu.chips import CHIPS
from ratchet.values.status import Refusal, Status
from tests.refusals import refused


@pytest.fixture
def pci(tmp_path, monkeypatch):
    """A machine with the given devices on its PCI bus, as (vendor, device)."""

    def plug(*found):
        for number, (vendor, device) in enumerate(found):
            folder = tmp_path / f"0000:00:{number:02}.0"
            folder.mkdir()
            (folder / "vendor").write_text(vendor + "\n")
            (folder / "device").write_text(device + "\n")

    monkeypatch.setattr(devices, "PCI", tmp_path)
    return plug


def test_a_tpu_is_found_and_preferred_to_the_model(pci):
    assert devices.preferred() == "v5e-model"
    pci(("0x8086", "0x0063"), ("0x1ae0", "0x0063"))
    assert devices.tpu() == "v5e"
    assert devices.preferred() == "tpu"
    assert devices.peak("tpu", devices.device("tpu")).peak_bf16_flops == 197e12


def test_another_google_device_is_no_tpu(pci):
    pci(("0x1ae0", "0x001f"))
    assert devices.tpu() == ""
    with refused(Status.UNSUPPORTED_PLATFORM, "no TPU is attached"):
        devices.device("tpu")


def test_a_gpu_whose_limits_are_not_known_is_refused():
    assert devices.peak("gpu", "NVIDIA H100 80GB HBM3").hbm_bytes_per_s == 3.35e12
    with pytest.raises(Refusal, match="not known"):
        devices.peak("gpu", "NVIDIA H1000")


def test_a_cpu_has_a_limit_that_nothing_passes():
    peak = devices.peak("cpu", devices.cpu())
    assert peak.peak_bf16_flops >= devices.CPU_HZ * 32
    assert devices.compiler("cpu").startswith("jaxlib ")


def test_the_chip_that_is_modelled_is_the_attached_one_where_a_tpu_is_timed(pci):
    pci(("0x1ae0", "0x006f"))
    assert devices.modelled("tpu") is CHIPS["v6e"]
    assert devices.modelled("v5p-model") is CHIPS["v5p"]
    assert devices.modelled("cpu") is None
    assert devices.modelled("no evaluator") is None
