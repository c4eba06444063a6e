"""What runs behind walls that are there already: one module as a program, by this Python or another one."""

from __future__ import annotations

import json
import os
import runpy
import sys
import traceback
from typing import NoReturn


def main(_control: int) -> NoReturn:
    """Of another Python, which the launcher became: arguments are where its packages are, and the module."""
    packages, module = sys.argv[4:6]
    sys.path += json.loads(packages)
    run(module)


def run(module: str) -> NoReturn:
    """Run a module as a program and end at once: threads of its libraries can make Python wait for them for ever."""
    code = 0
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as ending:
        code = ending.code if isinstance(ending.code, int) else bool(ending.code)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stderr.flush()
    os._exit(code)
