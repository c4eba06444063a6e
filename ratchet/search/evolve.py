"""A search over the edits of ``advise``: versions of a file, each an ordered set of edits, bred by what each edit did.

The population is the fastest versions so far. A child is a parent with one more edit of those whose pattern is in it,
or with the edits of another parent that still can be made. Those are tried first whose edits did most for the versions
that they were made in, with some chance. The same trials give the same proposals: what is drawn at random follows from
their number.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from ratchet.advise.advice import Edit, Rewrite
from ratchet.advise.advise import Run, program, rewrites, saved
from ratchet.advise.prediction import Prediction
from ratchet.advise.tiles import raised
from ratchet.kernelfile.knobs import in_words, values, with_constants
from ratchet.kernelfile.syntax import File
from ratchet.search.candidates import Candidate
from ratchet.search.space import Observation, Space
from ratchet.values import Literal, Timeline
from ratchet.values.status import Refusal, Status

HOW = "edits"
HELP = "edits of the file as `advise` knows them, kept ones recombined"
AS_IT_IS = "as it is"
PATIENCE = 24
"""So many trials without a better one are enough, where nothing else is asked for."""
POPULATION = 6
CHANCE = 0.03
"""Standard deviation of what chance adds to the logarithm of a child's expected latency."""
FAILED = 0.5
"""The same of an edit that was refused."""
_DOUBT = 1
"""An edit's record counts as if it had been made so many times more, and had changed nothing."""
_GUESS = 0.5
"""Of the share of cycles that an edit is about, by which it is taken to help before one of its kind was tried."""
_TITLE = 200


@dataclass(frozen=True, kw_only=True)
class Gene:
    """One edit, whichever version it is made in."""

    edit: Edit | None
    """None for a constant of the space."""
    subject: str
    point: tuple[tuple[str, Literal], ...] = ()
    """Constants and their new values, where it is no more than that."""
    variant: int = 0
    """Which of several edits that are alike otherwise."""

    @classmethod
    def of(cls, rewrite: Rewrite) -> Gene:
        return cls(edit=rewrite.edit, subject=rewrite.subject, point=tuple(sorted(rewrite.point.items())))

    @property
    def names(self) -> tuple[str, ...]:
        """The constants that it sets."""
        return tuple(name for name, _ in self.point)

    @property
    def title(self) -> str:
        if self.point or self.edit is None:
            return in_words(dict(self.point)) + (" under a higher VMEM limit" if self.edit is Edit.VMEM else "")
        return f"{self.edit.value} {self.subject}".rstrip() + (f" ({self.variant + 1})" if self.variant else "")


def genes(every: Iterable[Rewrite]) -> Iterator[tuple[Gene, bytes]]:
    """Each edit with what it makes of the file."""
    count: Counter[Gene] = Counter()
    for rewrite in every:
        gene = Gene.of(rewrite)
        yield replace(gene, variant=count[gene]), rewrite.after
        count[gene] += 1


@dataclass(frozen=True, kw_only=True)
class Version:
    """The file with edits made."""

    text: bytes
    genes: tuple[Gene, ...] = ()
    """In the order in which they were made."""
    parent: int = 0
    """Number of the version that they were made in, its own among them."""
    added: int = 0
    """How many of them were made there, the last ones."""

    @cached_property
    def program(self) -> str:
        return program(self.text)

    @property
    def title(self) -> str:
        title = " + ".join(gene.title for gene in self.genes) or AS_IT_IS
        return title if len(title) <= _TITLE else f"{title[: _TITLE - 1]}…"


def _with(genes: tuple[Gene, ...], gene: Gene) -> tuple[Gene, ...]:
    """One more at the end; what set the same constants before is gone."""
    return (*(one for one in genes if not one.names or one.names != gene.names), gene)


def expected(start: bytes, name: str, timeline: Timeline | None, known: Mapping[str, Prediction]) -> dict[Gene, float]:
    """What the edits of a file are expected to do to the logarithm of its latency.

    Args:
      start: the file.
      name: what it is called.
      timeline: its modelled run, by which ``advise`` guesses; None where that is not there.
      known: what was modelled of it and its edits, by ``program``.
    """
    file, base = File.of(start, name), known.get(program(start))
    run = Run(timeline=timeline, file=name) if timeline else None
    found: dict[Gene, float] = {}
    every = rewrites(file)
    for rewrite, (gene, _) in zip(every, genes(every), strict=True):
        one = known.get(program(rewrite.after))
        if base and base.score and one:
            did = math.log(one.score.latency_ms / base.score.latency_ms) if one.score else FAILED
        else:
            did = -_GUESS * saved(run, rewrite) / max(1, run.timeline.cycles) if run else 0.0
        found[gene] = did
    return found


@dataclass(kw_only=True)
class Edits:
    """The course of one search. Whoever asks it hands back what came of all that it proposed, in order."""

    start: bytes
    name: str
    """What the file is called."""
    space: Space | None = None
    """Constants that may be changed, too."""
    first: Mapping[Gene, float] = field(default_factory=dict)
    """What edits are expected to do, before one was tried: their part of the logarithm of the latency."""
    study: str = ""
    versions: list[Version] = field(default_factory=list)
    """All that was proposed."""
    _variants: dict[bytes, dict[Gene, bytes]] = field(default_factory=dict)

    def propose(self, observations: Sequence[Observation], count: int) -> tuple[Candidate, ...]:
        """Up to ``count`` versions that were not tried, fewer where there are no more. The first is the start."""
        if not observations:
            self.versions = [Version(text=self.start)]
            return (self._candidate(self.versions[0]),)
        del self.versions[len(observations) :]
        chosen: dict[str, Version] = {}
        tried = {one.program for one in self.versions}
        for version in self._children(observations):
            if version.program not in tried:
                chosen.setdefault(version.program, version)
            if len(chosen) == count:
                break
        self.versions += chosen.values()
        return tuple(map(self._candidate, chosen.values()))

    def left_out(self, _observations: Sequence[Observation]) -> int:
        """None: what overflows is tried."""
        return 0

    def _candidate(self, version: Version) -> Candidate:
        message = f"search: {version.title}\n\nA trial of the {HOW} search {self.study}."
        return Candidate(text=version.text, message=message, point={HOW: version.title})

    def _children(self, observations: Sequence[Observation]) -> Iterator[Version]:
        """Every child of the population, the most promising first."""
        timed = [at for at, one in enumerate(observations) if one.latency_ms]
        timed.sort(key=lambda at: (observations[at].latency_ms, at))
        population = timed[:POPULATION]
        refused = [at for at, one in enumerate(observations) if one.status is Status.VMEM_OVERFLOW]
        overflowed = {self.versions[at].genes[-1] for at in refused if self.versions[at].added == 1}
        effects = self._effects(observations)
        rng = random.Random(len(observations))
        children: list[tuple[float, Version]] = []
        for at in population:
            latency = math.log(observations[at].latency_ms or 1)
            for version in (*self._mutants(at, overflowed), *self._crossed(at, population)):
                gained = sum(self._effect(gene, effects) for gene in version.genes[-version.added :])
                children.append((latency + gained + rng.gauss(0, CHANCE), version))
        children.sort(key=lambda one: one[0])
        yield from (version for _, version in children)

    def _mutants(self, at: int, overflowed: Container[Gene]) -> Iterator[Version]:
        parent = self.versions[at]
        for gene, text in self._edited(parent.text).items():
            yield Version(text=text, genes=_with(parent.genes, gene), parent=at, added=1)
            if gene.edit is Edit.LARGER and gene in overflowed:
                larger = Rewrite(edit=Edit.LARGER, after=text, lines=(), point=dict(gene.point))
                if (higher := raised(larger, self.name)) is not None:
                    room = replace(gene, edit=Edit.VMEM)
                    yield Version(text=higher.after, genes=_with(parent.genes, room), parent=at, added=1)

    def _crossed(self, at: int, population: Sequence[int]) -> Iterator[Version]:
        """A parent with what it lacks of another one's edits."""
        parent = self.versions[at]
        for other in population:
            text, genes, added = parent.text, parent.genes, 0
            for gene in self.versions[other].genes:
                made = self._with_gene(text, gene) if gene not in parent.genes else None
                if made is not None and made != text:
                    text, genes, added = made, _with(genes, gene), added + 1
            if added > 1:  # one is a mutant
                yield Version(text=text, genes=genes, parent=at, added=added)

    def _with_gene(self, text: bytes, gene: Gene) -> bytes | None:
        """A version with an edit of another one made; None where it cannot be."""
        made = self._edited(text).get(gene)
        if made is None and gene.point:
            try:
                made = with_constants(text, self.name, dict(gene.point))
            except Refusal:
                return None
            return made if self._allowed(made) else None
        return made

    def _edited(self, text: bytes) -> Mapping[Gene, bytes]:
        """A version with one more edit made, by that edit."""
        if text not in self._variants:
            self._variants[text] = dict(self._made(text))
        return self._variants[text]

    def _made(self, text: bytes) -> Iterator[tuple[Gene, bytes]]:
        try:
            every = rewrites(File.of(text, self.name))
        except Refusal:  # an edit of an edit that is no Python
            return
        yield from ((gene, after) for gene, after in genes(every) if self._allowed(after))
        for axis in self.space.axes if self.space else ():
            for value in axis.values:
                try:
                    changed = with_constants(text, self.name, {axis.name: value})
                except Refusal:  # an edit took the constant away
                    continue
                if self._allowed(changed):
                    yield Gene(edit=None, subject="", point=((axis.name, value),)), changed

    def _allowed(self, text: bytes) -> bool:
        """Whether the conditions of the space hold for the constants of a version, as far as it has them."""
        return self.space is None or self.space.allows(values(text, self.name))

    def _effects(self, observations: Sequence[Observation]) -> dict[Gene | Edit | None, list[float]]:
        """What each edit, and each kind, did to the logarithm of the latency of the version that it was made in."""
        found: dict[Gene | Edit | None, list[float]] = {}
        for version, one in zip(self.versions, observations, strict=False):
            before = observations[version.parent].latency_ms
            if version.added != 1 or not before:
                continue
            did = math.log(one.latency_ms / before) if one.latency_ms else FAILED
            gene = version.genes[-1]
            for key in (gene, gene.edit) if one.latency_ms else (gene,):  # another block may fit
                found.setdefault(key, []).append(did)
        return found

    def _effect(self, gene: Gene, effects: Mapping[Gene | Edit | None, list[float]]) -> float:
        """Expected of an edit: by its own record, with what is expected of its kind counted once more."""
        own = effects.get(gene, [])
        kind = effects.get(gene.edit) or (effects.get(Edit.LARGER, []) if gene.edit is Edit.VMEM else [])
        prior = self.first.get(gene, sum(kind) / (len(kind) + _DOUBT))
        return (sum(own) + _DOUBT * prior) / (len(own) + _DOUBT)
