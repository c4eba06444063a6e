"""Shows that two judges give equal verdicts: ``python -m tools.series --before COMMIT [--only TEXT …] [--write]``.

Clones of ``COMMIT`` and of HEAD judge the same programs by ``prepare.py --json``: the kernels of the tree, the
examples, and the self-test's honest kernels and cheats, except those that are measured or never end. Both have the same
secret, so they draw the same inputs. Two documents are equal if they have the same fields, statuses and numbers; in
sentences the numbers count and the words do not, and seconds, ids, paths and seals do not count. A cheat that names
modules of the judge only has to be refused by both, or to gain nothing, since they may have other ones. Any other
program whose documents differ is judged by the older judge again: where that judge does not agree with itself, both
only have to refuse the program as its entry says. ``--write`` adds the proof to ``ratchet/loop/series.json``. It takes
half an hour on two cores; with ``--work FOLDER`` the clones stay there, and what they judged is not judged again.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ratchet.exam.judge.secret import FOLDER, SECRET_BYTES
from ratchet.exam.problem.problem import lock_path
from ratchet.loop.series import FILE, Proof, proofs
from ratchet.selftest import corpus
from ratchet.values.status import Status
from ratchet.values.trial import NO_GAIN
from tools.documents import ROOT

WORK = "series"
KERNEL, DOCUMENT = "kernel.py", "document.json"
UNCOUNTED = ("seconds", "id", "commit", "time", "seal", "series", "remembered")
"""Fields that two judges need not agree on."""
_PATH = re.compile(r"[^\s'\"(]*/[^\s'\"):]*(?::\d+)?")
_SECONDS = re.compile(r"\b\d+(?:\.\d+)? s\b")
_STAMP = re.compile(r"\b\d{12,}-\S*")
"""The name of a dump of the compiler's: when it was written, of what, after how many other passes that were dumped."""
_DAMAGED = re.compile(r"unpack_from requires a buffer .* \(actual buffer size is \d+\)")
"""How far a damaged artefact could be read; how long it is depends on the paths of the judge's own files."""
_OWN_NAME = re.compile(r"\bratchet\.[a-z_]+")
"""How a program names a module of the judge's, which another judge need not have."""
_NUMBER = re.compile(r"0x[0-9a-f]+|-?\d+(?:[.,]\d+)*(?:e[+-]?\d+)?")

Document = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Program:
    """A kernel file to be judged."""

    group: str
    name: str
    text: str
    lock: Path | None = None
    """Its frozen problem."""
    base: str = ""
    """The program by whose frozen problem it is judged."""
    allowed: tuple[str, ...] = ()
    """Statuses that it may end in."""

    @property
    def folder(self) -> str:
        return f"{self.group}-{self.name.replace('/', '_')}"


def programs(root: Path) -> Iterator[Program]:
    """The frozen corpus, each program behind the one that freezes its problem."""
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=root, check=True, capture_output=True, text=True).stdout
    for name in listed.splitlines():
        path = root / name
        if name.startswith("tests/") or "\nKERNEL_NAME = " not in path.read_text():
            continue
        lock = lock_path(path)
        group = "examples" if name.startswith("examples/") else "kernels"
        yield Program(group=group, name=name, text=path.read_text(), lock=lock if lock.exists() else None)
    entries = corpus.read(root)
    honest = {name: one for name, one in entries.honest.items() if one.on == corpus.MODEL}
    for name, one in honest.items():
        yield Program(group="honest", name=name, text=one.source)
    for cheat in entries.cheats:
        if cheat.on != corpus.MODEL or Status.TIMEOUT.name in cheat.expected:
            continue
        text = f"{honest[cheat.base].source}\n\n{cheat.text}" if cheat.base in honest else cheat.text
        base = "" if cheat.own_problem else f"honest-{cheat.base}"
        yield Program(group="cheats", name=cheat.name, text=text, base=base, allowed=cheat.expected)


@dataclass(frozen=True, kw_only=True)
class Judge:
    """A clone of the repository, whose own ``prepare.py`` judges."""

    root: Path

    @classmethod
    def at(cls, commit: str, root: Path) -> Judge:
        """A clone at ``commit``, with the secret that all have here; what was judged in it before is kept."""
        if root.exists():
            return cls(root=root)
        subprocess.run(["git", "clone", "-q", ROOT, root], check=True)
        subprocess.run(["git", "checkout", "-q", "-B", "judged", commit], cwd=root, check=True)
        (root / ".git" / "info" / "exclude").write_text(f"{WORK}/\n.venv\n")
        if (root / "requirements.lock").read_bytes() == (ROOT / ".venv" / "requirements.lock").read_bytes():
            (root / ".venv").symlink_to(ROOT / ".venv")
        (root / FOLDER).mkdir()
        (root / FOLDER / "secret").write_bytes(bytes(range(SECRET_BYTES)))
        subprocess.run([root / "ratchet.sh", "--help"], check=True, capture_output=True)
        return cls(root=root)

    def document(self, program: Program, *, again: bool = False) -> Document:
        """What it says of a program; ``again``: judged once more."""
        folder = self.root / WORK / program.folder
        if not again and (folder / DOCUMENT).exists() and (folder / KERNEL).read_text() == program.text:
            return json.loads((folder / DOCUMENT).read_text())
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        (folder / KERNEL).write_text(program.text)
        lock = lock_path(self.root / WORK / program.base / KERNEL) if program.base else program.lock
        if lock is not None:
            shutil.copyfile(lock, lock_path(folder / KERNEL))
        command = [sys.executable, "prepare.py", "--kernel", str(folder / KERNEL), "--json", "--fresh"]
        done = subprocess.run(command, cwd=self.root, check=False, capture_output=True, text=True)
        found: Document = json.loads(done.stdout or "{}")
        if not found.get("verdict"):
            raise RuntimeError(f"{program.name}: {self.root.name} judged nothing: {done.stdout}{done.stderr[-2000:]}")
        (folder / DOCUMENT).write_text(done.stdout)
        return found

    def holds(self, cheat: Program) -> bool:
        """Whether it refused a cheat that it judged, or ranks it as its base where its entry says so."""
        score = self.document(cheat)["verdict"]["score"]
        if score is None or NO_GAIN not in cheat.allowed:
            return score is None and bool(cheat.allowed)
        base = json.loads((self.root / WORK / cheat.base / DOCUMENT).read_text())
        return score == base["verdict"]["score"]


def differences(one: Any, other: Any, at: str = "") -> Iterator[str]:
    """Where two documents differ in what counts: a line for each place."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for name in sorted(one.keys() | other.keys()):
            if name in UNCOUNTED:
                continue
            if name not in one or name not in other:
                yield f"{at}.{name}: only in one"
            else:
                yield from differences(one[name], other[name], f"{at}.{name}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for place, (first, second) in enumerate(zip(one, other, strict=True)):
            yield from differences(first, second, f"{at}[{place}]")
    elif isinstance(one, str) and isinstance(other, str) and " " in one and " " in other:
        if numbers(one) != numbers(other):
            yield f"{at}: {one!r:.300} | {other!r:.300}"
    elif one != other or type(one) is not type(other):
        yield f"{at}: {one!r:.300} | {other!r:.300}"


def numbers(sentence: str) -> list[str]:
    """The numbers of a sentence, without those of paths and seconds."""
    for noise in (_PATH, _SECONDS, _STAMP, _DAMAGED):
        sentence = noise.sub(" ", sentence)
    return _NUMBER.findall(sentence)


def compare(program: Program, older: Judge, newer: Judge, pool: ThreadPoolExecutor) -> tuple[str, list[str], Document]:
    """``equal``, ``refused``, ``unstable`` or ``different``, what differs, and the newer document."""
    before, after = pool.map(lambda judge: judge.document(program), (older, newer))
    found = list(differences(before, after))
    if not found:
        return "equal", [], after
    ends = {document["outcome"]["status"] for document in (before, after)}
    if _OWN_NAME.search(program.text) and all(judge.holds(program) for judge in (older, newer)):
        return "refused", found, after
    again = older.document(program, again=True)
    ends.add(again["outcome"]["status"])
    if list(differences(before, again)) and ends <= set(program.allowed):
        return "unstable", found, after
    return "different", found, after


def main(given: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--before", required=True, metavar="COMMIT", help="the judge that is known")
    parser.add_argument("--only", nargs="+", default=[""], metavar="TEXT", help="programs whose name has one of these")
    parser.add_argument("--write", action="store_true", help="add the proof to series.json")
    parser.add_argument(
        "--work", type=Path, metavar="FOLDER", help="keep the clones there, and go on from what they judged"
    )
    options = parser.parse_args(given)
    if options.write and options.only != [""]:
        parser.error("a proof is of the whole corpus: leave out --only")
    counts: dict[str, dict[str, int]] = {}
    judged: dict[str, Document] = {}
    with tempfile.TemporaryDirectory() as temporary, ThreadPoolExecutor(2) as pool:
        folder = options.work or temporary
        older, newer = Judge.at(options.before, Path(folder, "older")), Judge.at("HEAD", Path(folder, "newer"))
        chosen = [one for one in programs(newer.root) if any(text in one.name for text in options.only)]
        bases = {one.base for one in chosen}
        chosen = [one for one in programs(newer.root) if one in chosen or one.folder in bases]
        for program in chosen:
            result, found, document = compare(program, older, newer, pool)
            counts.setdefault(program.group, {}).setdefault(result, 0)
            counts[program.group][result] += 1
            judged[program.folder] = document
            print(f"{program.group} {program.name}: {result}", *found[:5], sep="\n    ", file=sys.stderr, flush=True)
        seals = [judge_seal(document) for document in (older.document(chosen[0]), judged[chosen[0].folder])]
    for group, results in counts.items():
        print(f"{group:<10}" + "  ".join(f"{count} {name}" for name, count in sorted(results.items())))
    print(f"seals {seals[0]} and {seals[1]}")
    if any("different" in results for results in counts.values()):
        return 1
    if options.write:
        write(seals, judged)
    return 0


def judge_seal(document: Document) -> str:
    seal: str = document["verdict"]["conditions"]["seal"]
    return seal


def write(seals: Sequence[str], judged: Mapping[str, Document]) -> None:
    """Add the proof that two judges are equal; of the same two, the last one counts."""
    text = json.dumps({name: countable(document) for name, document in judged.items()}, sort_keys=True)
    made = Proof(
        seal=seals[1],
        equals=seals[0],
        programs=len(judged),
        documents=hashlib.sha256(text.encode()).hexdigest(),
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
    )
    entries = {**proofs(), made.seal: made}
    FILE.write_text(json.dumps([asdict(one) for one in entries.values()], indent=1) + "\n")


def countable(value: Any) -> Any:
    """A document as far as it counts."""
    if isinstance(value, Mapping):
        return {name: countable(one) for name, one in value.items() if name not in UNCOUNTED}
    if isinstance(value, list):
        return [countable(one) for one in value]
    return numbers(value) if isinstance(value, str) and " " in value else value


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
