"""The terms of a window: words and phrases, how much they say, and in which memories they stand.

A phrase counts as a term when it stands in two memories, or looks like a compound noun.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from worker.sleep import lexicon
from worker.sleep.tokens import Role, Token, lowered, tokens, weight_of, written

#: Words in a phrase at most.
PHRASE = 3


@dataclass(frozen=True, slots=True)
class Term:
    """A word or phrase and the memories (places in the window) it stands in.

    `weight` is how much it says by itself, about 0 to 1.5.
    """

    key: tuple[str, ...]
    text: str
    places: frozenset[int]
    weight: float
    name: bool
    article: bool = False

    @property
    def spoken(self) -> str:
        """The term as it stands in a sentence, with its article where it has one."""
        return f"the {self.text}" if self.article else self.text

    def overlaps(self, other: "Term") -> bool:
        """Whether both share a word."""
        return not set(self.key).isdisjoint(other.key)


class Window:
    """The terms of several texts."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = texts
        self.tokens = settled([tokens(text) for text in texts])
        self.terms = _terms(self.tokens)
        self._words = [
            {token.key for token in text if token.role is not Role.GAP} for text in self.tokens
        ]

    def of(self, place: int) -> list[Term]:
        """The terms of one memory, in the order in which they were first seen."""
        return [term for term in self.terms if place in term.places]

    def likeness(self, one: int, other: int) -> float:
        """How alike two memories are word by word, 0 to 1; numbers count for nothing."""
        first, second = self._words[one], self._words[other]
        union = len(first | second)
        return len(first & second) / union if union else 1.0


def settled(texts: Sequence[tuple[Token, ...]]) -> list[list[Token]]:
    """Decide what only the whole window tells: names at the start of sentences, forms of verbs."""
    every = [token for text in texts for token in text]
    names = {token.key for token in every if token.role is Role.NAME}
    plain = {token.key for token in every if token.role is Role.WORD}
    capitals = Counter(token.key for token in every if token.role is Role.CAPITAL)
    known = plain | capitals.keys()

    def settle(token: Token, follower: Token | None) -> Token:
        if token.role is Role.CAPITAL:
            again = capitals[token.key] > 1 and token.key not in plain
            leads = follower is not None and (
                (follower.role is Role.NAME and follower.text.isalpha())
                or follower.text in lexicon.ENGLISH_SPEAKING
            )
            acts = token.key.endswith(("ed", "ing"))
            if token.key in names or ((again or leads) and not acts):
                return replace(token, role=Role.NAME)
            token = replace(token, role=Role.WORD, text=lowered(token.text))
        if token.role is Role.WORD and token.weight > 0.3:
            base = _base(token.key, known)
            return replace(token, key=base, weight=min(token.weight, weight_of(base)))
        return token

    return [
        [settle(token, after) for token, after in zip_longest(text, text[1:])] for text in texts
    ]


def _base(key: str, known: set[str]) -> str:
    """The form without -ed or -ing, where the window holds it too."""
    for ending in ("ed", "ing"):
        if key.endswith(ending) and len(key) > len(ending) + 2:
            stem = key[: -len(ending)]
            for base in (stem, stem + "e", stem[:-1] if stem[-1:] == stem[-2:-1] else stem):
                if base in known:
                    return base
    return key


@dataclass(slots=True)
class _Sightings:
    places: set[int]
    forms: Counter[str]
    seen: int = 0
    names: int = 0
    things: int = 0
    articles: int = 0
    #: Seen as a whole run of nouns.
    whole: bool = False
    weight: float = 0.0


def _terms(texts: Sequence[Sequence[Token]]) -> list[Term]:
    seen: dict[tuple[str, ...], _Sightings] = defaultdict(lambda: _Sightings(set(), Counter()))
    for place, text in enumerate(texts):
        for run in _runs(text):
            for start in range(len(run)):
                for end in range(start + 1, min(start + PHRASE, len(run)) + 1):
                    key = tuple(token.key for token in run[start:end])
                    _note(seen[key], place, run, start, end)
    kept = {
        key: sightings
        for key, sightings in seen.items()
        if (len(key) == 1 or len(sightings.places) > 1 or sightings.whole) and sightings.weight
    }
    inner = _covered(kept)
    return [_term(key, sightings) for key, sightings in kept.items() if key not in inner]


def _runs(text: Sequence[Token]) -> Iterator[list[Token]]:
    """Words with no gap between."""
    run: list[Token] = []
    for token in text:
        if token.role is not Role.GAP:
            run.append(token)
        elif run:
            yield run
            run = []
    if run:
        yield run


def _note(sightings: _Sightings, place: int, run: list[Token], start: int, end: int) -> None:
    phrase = run[start:end]
    sightings.places.add(place)
    sightings.seen += 1
    sightings.forms[written(phrase)] += 1
    sightings.names += any(token.role is Role.NAME for token in phrase)
    if len(phrase) > 1 or phrase[0].role is not Role.GLUE:
        sightings.weight = max(sightings.weight, _together([token.weight for token in phrase]))
    # What a determiner stands before is a thing, and in English the last word says which.
    thing = run[0].before in lexicon.ENGLISH_DETERMINERS
    sightings.things += thing
    if end == len(run):
        sightings.articles += run[0].before in {"the", "this", "our", "that"}
        whole = start == 0 and len(run) > 1 and _is_compound(run, thing=thing)
        sightings.whole = sightings.whole or whole


def _is_compound(run: list[Token], *, thing: bool) -> bool:
    """Whether a run is one noun made of nouns, by its looks: the status page, 任务队列."""
    short = len(run) <= 3 if thing else len(run) == 2 and not run[0].text.isascii()
    return short and all(token.role is Role.WORD and token.weight == 1.0 for token in run)


def _together(weights: list[float]) -> float:
    """Weigh a phrase: more than its words, if there is no noise in it."""
    mean = sum(weights) / len(weights)
    return mean * (1.0 if len(weights) == 1 else 1.4)


def _covered(kept: dict[tuple[str, ...], _Sightings]) -> set[tuple[str, ...]]:
    """The terms that stand nowhere but inside a longer one."""
    covered = set()
    for key, sightings in kept.items():
        for size in range(1, len(key)):
            for start in range(len(key) - size + 1):
                part = key[start : start + size]
                if part in kept and kept[part].places == sightings.places:
                    covered.add(part)
    return covered


def _term(key: tuple[str, ...], sightings: _Sightings) -> Term:
    name = sightings.names * 2 > sightings.seen
    latin = key[0].isascii()
    weight = sightings.weight * (1.1 if name else 1.0)
    if latin and not name and len(key) == 1 and not sightings.things:
        weight *= 0.6  # Nowhere used as a thing, so rather a verb.
    text = max(sightings.forms.items(), key=lambda form: (form[1], -len(form[0]), form[0]))[0]
    # "the audit" once is enough; a name has an article only where it mostly has: the EU.
    article = sightings.articles * 2 > sightings.seen if name else sightings.articles > 0
    return Term(key, text, frozenset(sightings.places), weight, name, article=latin and article)


_QUOTED = re.compile(
    r"[“「『《]([^“”「」『』《》\n]{2,20})[”」』》]|(?<![\w\\])\"(\w[^\"\n\\{}:,]{0,18}\w)\""
)


def entities(text: str, settled_tokens: Sequence[Token]) -> list[str]:
    """The names, identifiers and quoted terms of a text, in its order, each once."""
    found: dict[str, str] = {}
    run: list[Token] = []
    for token in (*settled_tokens, Token("", "", Role.GAP)):
        joins = token.role is Role.NAME and token.text.isalpha() and token.text[0].isupper()
        if run and not joins:
            found.setdefault(written(run).casefold(), written(run))
            run = []
        if joins:
            run.append(token)
        elif token.role is Role.NAME:
            found.setdefault(token.text.casefold(), token.text)
    for match in _QUOTED.finditer(text):
        name = (match[1] or match[2]).strip()
        found.setdefault(name.casefold(), name)
    return list(found.values())
