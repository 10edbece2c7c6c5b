"""The offline stand-in: answers the three questions by statistics of the window, with no model.

It needs no network and says the same about the same memories. What it says has the shape a model's
answer has, so that it goes through the same readers. It claims no more than it counted: which terms
recur, in which kinds of memory, and which others stand beside them.
"""

import json
import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import combinations

from worker.errors import NoInsight
from worker.sleep import phrases
from worker.sleep.model import MAX_ENTITIES, MAX_TOPICS, Answer, Question, Step, WindowItem
from worker.sleep.terms import Term, Window, entities
from worker.sleep.tokens import is_chinese

#: How much a memory of a kind counts; others count 1.
KIND_WEIGHTS = {"decision": 3.0, "preference": 2.5, "fact": 2.0, "skill": 2.0}
#: What a routine note counts: one of several made to one pattern.
ROUTINE = 0.25
#: Memories this alike, word by word, are one pattern; to connect them would say nothing new.
ALIKE = 0.6
#: A term of less weight is noise, and carries neither a connection nor an insight by itself.
NOISE = 0.3
#: A term of less weight is hardly a thing, and does not stand beside a subject.
WEAK = 0.6
#: Terms that an insight names beside its subject.
MAX_COMPANIONS = 3
#: Connections that one memory may take part in.
MAX_LINKS = 2

#: How much the memories beside those of an insight's subject must count to be named too.
SECOND = 3.0

NOTHING = "nothing recurs in this window"


class OfflineModel:
    """A deterministic stand-in for a model; `ask` takes no time to speak of and costs nothing."""

    @property
    def name(self) -> str:
        """What status, reports and `enable` show."""
        return "offline"

    def ask(self, question: Question, *, deadline_s: float) -> Answer:
        """Answer from the window's own words.

        Raises NoInsight where an insight is asked for and nothing recurs.
        """
        view = View(question.items)
        match question.step:
            case Step.METADATA:
                return Answer(_json(view.metadata()))
            case Step.CONNECTIONS:
                return Answer(_json(view.connections(question.limit)))
            case Step.INSIGHT:
                return Answer(view.insight())


def _json(rows: Iterable[dict[str, object]]) -> str:
    return json.dumps(list(rows), ensure_ascii=False)


class View:
    """A window of memories, and what can be counted in it."""

    def __init__(self, items: Sequence[WindowItem]) -> None:
        self.items = items
        self.window = Window([item.text for item in items])
        self.chinese = is_chinese(item.text for item in items)
        self.weights = self._weights()

    def metadata(self) -> Iterable[dict[str, object]]:
        """Each memory's entities, in the order of the text, and topics, the weightiest first."""
        for place, item in enumerate(self.items):
            yield {
                "id": item.id,
                "entities": entities(item.text, self.window.tokens[place])[:MAX_ENTITIES],
                "topics": [term.text for term in self._topics(place)],
            }

    def connections(self, limit: int) -> Iterable[dict[str, object]]:
        """At most `limit` pairs that share what is rare in the window, from newer to older."""
        pairs = []
        for one, other in combinations(range(len(self.items)), 2):
            shared = self._shared(one, other)
            if shared and self.window.likeness(one, other) < ALIKE:
                score = sum(self._rarity(term) for term in shared)
                score *= math.sqrt(self.weights[one] * self.weights[other])
                pairs.append((-round(score, 9), one, other, shared))
        links: dict[int, int] = {}
        for _, one, other, shared in sorted(pairs, key=lambda pair: pair[:3]):
            if limit > 0 and max(links.get(one, 0), links.get(other, 0)) < MAX_LINKS:
                limit -= 1
                links[one], links[other] = links.get(one, 0) + 1, links.get(other, 0) + 1
                yield {
                    "from_id": self.items[one].id,
                    "to_id": self.items[other].id,
                    "relationship": phrases.relationship(shared, chinese=self.chinese),
                }

    def insight(self) -> str:
        """Say what recurs, where, and beside what. Raises NoInsight where nothing does."""
        subjects = self._subjects()
        if not subjects:
            raise NoInsight(NOTHING)
        subject = self._specific(subjects[0])
        companions = self._companions(subject)
        return phrases.insight(
            subject,
            kinds=self._kinds(subject),
            several_days=self._days(subject) > 1,
            companions=companions,
            second=self._second((subject, *companions), subjects),
            chinese=self.chinese,
        )

    def _weights(self) -> list[float]:
        """How much each memory counts; notes made to one pattern count little."""
        count = len(self.items)
        routine = set()
        for one, other in combinations(range(count), 2):
            if self._first_word(one) == self._first_word(other) != "" or (
                self.window.likeness(one, other) >= ALIKE
            ):
                routine |= {one, other}
        return [
            ROUTINE
            if place in routine and item.kind == "note"
            else KIND_WEIGHTS.get(item.kind, 1.0)
            for place, item in enumerate(self.items)
        ]

    def _first_word(self, place: int) -> str:
        return next((token.key for token in self.window.tokens[place]), "")

    def _weight(self, term: Term) -> float:
        return term.weight * sum(self.weights[place] for place in term.places)

    def _rarity(self, term: Term) -> float:
        return term.weight * math.log((len(self.items) + 1) / len(term.places))

    def _subjects(self) -> list[Term]:
        """What recurs, the weightiest first; noise only where nothing else does."""
        recurring = [term for term in self.window.terms if len(term.places) > 1]
        telling = [term for term in recurring if term.weight > NOISE]
        return sorted(telling or recurring, key=lambda term: (-self._weight(term), term.key))

    def _specific(self, subject: Term) -> Term:
        """Choose the phrase a subject mostly stands in, if there is one: cold chain for chain."""
        for term in self.window.terms:
            within = set(subject.key) < set(term.key) and term.weight > NOISE
            if within and len(term.places) * 3 >= len(subject.places) * 2:
                return term
        return subject

    def _topics(self, place: int) -> list[Term]:
        def weight(term: Term) -> float:
            return term.weight * (1 + math.log(len(term.places)))

        return _apart(
            sorted(self.window.of(place), key=lambda term: -round(weight(term), 9)), MAX_TOPICS
        )

    def _shared(self, one: int, other: int) -> list[Term]:
        """The two rarest telling terms that both memories hold, and few others."""
        most = max(2, len(self.items) // 3)
        shared = [
            term
            for term in self.window.of(one)
            if other in term.places and term.weight > NOISE and len(term.places) <= most
        ]
        return _apart(sorted(shared, key=lambda term: (-self._rarity(term), term.key)), 2)

    def _kinds(self, term: Term) -> dict[str, int]:
        """How many memories of each kind hold a term, notes left out; weightiest kind first."""
        kinds = [self.items[place].kind for place in term.places]
        return {kind: kinds.count(kind) for kind in KIND_WEIGHTS if kind in kinds}

    def _days(self, term: Term) -> int:
        stamps = [self.items[place].ts for place in term.places]
        return len({datetime.fromtimestamp(stamp, UTC).date() for stamp in stamps})

    def _companions(self, subject: Term) -> list[Term]:
        """What stands beside the subject, each in another memory, so that none says it all."""
        beside = [
            term
            for term in self.window.terms
            if term.weight > WEAK
            and not term.overlaps(subject)
            and term.places & subject.places
            and (len(term.places) > 1 or term.name)
        ]
        beside.sort(key=lambda term: (-self._beside(term, subject), -len(term.places), term.key))
        chosen: list[Term] = []
        taken: set[frozenset[int]] = set()
        for term in beside:
            places = term.places & subject.places
            if places not in taken and not any(term.overlaps(other) for other in chosen):
                chosen.append(term)
                taken.add(places)
        return chosen[:MAX_COMPANIONS]

    def _beside(self, term: Term, subject: Term) -> float:
        """How much a term says about a subject: in how weighty memories both stand together."""
        together = sum(self.weights[place] for place in term.places & subject.places)
        return round(term.weight * together, 9)

    def _second(self, said: Sequence[Term], subjects: Sequence[Term]) -> Term | None:
        """Choose another subject, of memories beside those of the first, if they weigh enough."""
        for term in subjects:
            if not any(term.overlaps(other) for other in said):
                apart = term.places - said[0].places
                weighs = sum(self.weights[place] for place in apart) >= SECOND
                return term if weighs and len(apart) > 1 else None
        return None


def _apart(terms: Iterable[Term], most: int) -> list[Term]:
    """The first `most` terms that share no word with one another."""
    chosen: list[Term] = []
    for term in terms:
        if len(chosen) < most and not any(term.overlaps(other) for other in chosen):
            chosen.append(term)
    return chosen
