"""Which records of a span end the instances that have them.

A library that crashes takes its whole instance with it, and leaves no word of the record that did
it. So a span that was there when an instance ended is run again with notes: what was at work stands
on the disk, and of whoever dies next that is what is suspected. Suspects are run apart from all
others, in many parts one after the other, which is bisection with more than two parts: a death
names one part. A record that ended three instances while nothing else was at work is refused, and
what is left is run as a whole again.

    a death             -> the whole span again, noted
    a death, noted      -> what was at work is suspected, and run apart
    a death, apart      -> the part that was at work is suspected
    of one record       -> it is run first, by itself; at the third death it is refused
    nobody died         -> the whole span again, without those that are refused

Only a run of the whole span is committed, with the batches that it always has. So outputs do not
depend on how the guilty were found, and an instance that is killed by chance costs time alone: who
was suspected is run apart, nobody dies, and the whole is run again.

What no record does alone comes back in whole runs: two that end an instance together, or the
reading of the span. Then something was at work at each of these deaths, and they are counted.
Chance strikes where it likes: as soon as no record was there every time, nobody can be to blame for
all of them, and the count begins anew. What ends a span nevertheless is how many deaths it has had.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

#: Instances that ended while they ran a record and nothing else. Of two deaths the first picks a
#: record by chance, and the second only has to come while that runs: a job with 100 kills sees it.
DEATHS_ALONE_MAX: Final = 3
#: Stands for the reading of the span, before any record of it was at work.
_READING: Final = -1
#: Of suspects that are run apart: few deaths to find one record among very many, and batches of a
#: common size are run record by record at once.
PARTS_MAX: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashCase:
    """What is known of one span whose instance ended. Records are numbered within it, from 0."""

    deaths: int = 0  #: of whole runs, one after the other, that have something in common
    common: tuple[int, ...] = ()  #: what was at work at each of these, ascending
    tries: int = 0  #: deaths of any kind, since a record was refused last
    suspects: tuple[int, ...] = ()  #: to be run apart, in this order; none: the whole span is run
    first_deaths: int = 0  #: of the first suspect, while nothing else was at work
    refused: tuple[tuple[int, str], ...] = ()  #: (record, how its last instance ended), ascending

    def parts(self) -> tuple[tuple[int, ...], ...]:
        """The suspects, as they are run: one part after the other, with no other beside it."""
        if self.first_deaths:
            return (self.suspects[:1], *_cut(self.suspects[1:]))
        return _cut(self.suspects)

    def died(self, at_work: tuple[int, ...] | None, story: str) -> CrashCase:
        """An instance ended while it had the span.

        Args:
            at_work: records that were; empty: none was yet; None: nothing was noted.
            story: how it ended.
        """
        case = replace(self, tries=self.tries + 1)
        if at_work is None:
            return case
        known = self._known(at_work)
        if not self.suspects:
            return case._died_whole(known)
        if not known:
            return case
        if len(known) > 1:
            return replace(case, suspects=known, first_deaths=0)
        record = known[0]
        before = self.first_deaths if record == self.suspects[0] else 0
        rest = tuple(one for one in self.suspects if one != record)
        if before + 1 < DEATHS_ALONE_MAX:
            return replace(case, suspects=(record, *rest), first_deaths=before + 1)
        refused = tuple(sorted((*self.refused, (record, story))))
        return CrashCase(suspects=rest, refused=refused)

    def _died_whole(self, known: tuple[int, ...]) -> CrashCase:
        there = known or (_READING,)
        common = tuple(sorted({*there} & {*self.common}))
        return replace(
            self,
            deaths=self.deaths + 1 if common else 1,
            common=common or there,
            suspects=known,
            first_deaths=int(len(known) == 1),
        )

    def passed(self) -> CrashCase:
        """All suspects were run apart and nobody died."""
        return replace(self, suspects=(), first_deaths=0)

    def _known(self, at_work: tuple[int, ...]) -> tuple[int, ...]:
        """Those of them that may be to blame, ascending."""
        cleared = {record for record, _ in self.refused}
        found = set(at_work) - cleared
        return tuple(sorted(found & set(self.suspects) if self.suspects else found))


def _cut(records: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """In parts of like size, as many as there may be."""
    size = max(1, -(-len(records) // PARTS_MAX))
    return tuple(records[at : at + size] for at in range(0, len(records), size))
