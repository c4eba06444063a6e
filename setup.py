"""Builds the wheel: what a clone has beside the package goes into ``pallas_ratchet/``."""

import tempfile
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

SHIPPED = (
    "prepare.py",
    "requirements.lock",
    "environment.sh",
    "ratchet.sh",
    "program.md",
    "kernel.py",
    "examples/*.py",
)


class WithFiles(build_py):
    """``build_py``, with the files that are no modules of the package."""

    def run(self) -> None:
        super().run()
        here = Path(__file__).resolve().parent
        for pattern in SHIPPED:
            for file in sorted(here.glob(pattern)):
                target = Path(self.build_lib, "pallas_ratchet", file.relative_to(here))
                self.mkpath(str(target.parent))
                self.copy_file(str(file), str(target))


with tempfile.TemporaryDirectory(prefix="ratchet-build-") as folder:  # what an earlier build left is in no wheel
    setup(cmdclass={"build_py": WithFiles}, options={"build": {"build_base": folder}, "egg_info": {"egg_base": folder}})
