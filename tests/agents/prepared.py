"""The command line with prepared verdicts, as a program: ``python prepared.py REPOSITORY ARGUMENTS``.

All of it is the real command line, git and ledger; only the judge reads its verdicts from the kernel file, as
``tests/loop/stage.py`` says. ``SLEEP = 5`` in a kernel file takes as many seconds to judge, ``PRINT`` is said while
judging.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve()
sys.path.insert(0, str(HERE.parents[2]))

from ratchet.agents import program  # noqa: E402
from ratchet.commands import cli, experiment  # noqa: E402
from ratchet.process.boot import home  # noqa: E402
from tests.loop.stage import Stage, StageJudge  # noqa: E402


def started(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run it to its end."""
    words = [sys.executable, str(HERE), str(root), *arguments]
    return subprocess.run(words, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)


def main(root: Path, arguments: list[str]) -> int:
    home.repository = lambda _start: root  # type: ignore[assignment]
    program.command = lambda: (sys.executable, str(HERE), str(root))  # type: ignore[assignment]
    stage = Stage(root=root)

    def slowly() -> None:
        for line in re.findall(r"^PRINT = (.*)", stage.judged[-1], re.MULTILINE):
            print(line, file=sys.stderr, flush=True)
        for seconds in re.findall(r"^SLEEP = (\S+)", stage.judged[-1], re.MULTILINE):
            time.sleep(float(seconds))

    stage.during = slowly
    experiment._judge = lambda *_: StageJudge(stage)  # type: ignore[assignment, return-value]
    return cli.main(arguments, lambda *_args, **_kwargs: None)  # type: ignore[arg-type, return-value]


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
