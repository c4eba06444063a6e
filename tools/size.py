"""Lines of Python by storey and room, beside those of the last release: ``python -m tools.size [--since COMMIT]``."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence

from tools.documents import ROOT

STOREYS = ("process", "tpu", "exam", "values")
BEFORE_RELEASES = "b1c1b6c"
"""Counts as the last release until there is a tag: the tree before it had four storeys."""


def git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout


def room(path: str) -> str:
    """Where a file counts: its room below a storey, else the folder that it is in."""
    parts = path.split("/")[:-1]
    return "/".join(parts[: 3 if parts[1:2] and parts[1] in STOREYS else 2 if parts[:1] == ["ratchet"] else 1]) or "."


def lines(commit: str) -> Mapping[str, int]:
    """Lines of Python by room; a storey and a top folder have those of their rooms, too."""
    counted: Counter[str] = Counter()
    for line in git("grep", "-c", "", commit, "--", "*.py").splitlines():
        path, count = line.removeprefix(f"{commit}:").rsplit(":", 1)
        own = room(path)
        whole = {own, own.rsplit("/", 1)[0] if own.count("/") == 2 else own, own.split("/")[0]}
        counted.update(dict.fromkeys(whole, int(count)))
    return counted


def main(given: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(":")[0])
    released = git("describe", "--tags", "--abbrev=0", "--match", "v*").strip() or BEFORE_RELEASES
    parser.add_argument("--since", default=released, metavar="COMMIT", help=f"beside which; default {released}")
    since = parser.parse_args(given).since
    now, before = lines("HEAD"), lines(since)
    print(f"{'lines of Python':<28}{'now':>8}{since[:10]:>12}")
    for name in sorted(now.keys() | before.keys()):
        print(f"{'  ' * name.count('/') + name:<28}{now.get(name, 0):>8}{before.get(name, 0) or '-':>12}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
