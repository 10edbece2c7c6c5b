"""From texts to terms: the words and phrases of a window, and in which memories they stand.

English and other scripts with spaces are cut at spaces; Chinese by rjieba, whose dictionary also
tells nouns from function words. A phrase counts as a term when it stands in two memories.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache
from itertools import combinations

import rjieba

from worker.sleep import lexicon

HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
#: Words in a phrase at most.
PHRASE = 4

_PIECE = re.compile(
    rf"(?P<link>https?://[^\s{HAN}]+)"
    rf"|(?P<han>[{HAN}]+)"
    rf"|(?P<word>(?:(?![{HAN}])\w)+(?:[-.'’/@+](?:(?![{HAN}])\w)+)*(?:\+\+|#(?!\w))?)"
    r"|(?P<end>[.!?;:。！？；：…\n])"
    r"|(?P<mark>[^\s\w])"
)
_AMOUNT = re.compile(r"[\d.,/:-]+(?:[a-z%]{1,3})?", re.IGNORECASE)
_CAPITALS = re.compile(r"[A-Z]{2}[A-Za-z0-9-]*|[a-z]+[A-Z]\w*|[A-Z][a-z]+[A-Z]\w*")
#: Word classes of rjieba that hold a meaning: nouns, verbs, adjectives, idioms, abbreviations.
_MEANING = ("n", "v", "a", "i", "l", "j", "b", "s", "z", "t")


class Role(Enum):
    """What a word does in a text."""

    NAME = auto()
    #: A capital at the start of a sentence: the rest of the window tells whether it is a name.
    CAPITAL = auto()
    WORD = auto()
    #: A single Chinese character: never a term, but it may be part of a phrase.
    GLUE = auto()
    #: A function word, a number, a mark: parts phrases.
    GAP = auto()


@dataclass(frozen=True, slots=True)
class Token:
    """One word as written. `key` is what its forms share; `weight` is how much it says, 0 to 1."""

    text: str
    key: str
    role: Role
    weight: float = 1.0
    #: The word before it, in lower case.
    before: str = ""


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


def is_chinese(texts: Iterable[str]) -> bool:
    """Whether more memories are Chinese than not; a Chinese character counts as a word."""
    votes = 0
    for text in texts:
        han = len(re.findall(f"[{HAN}]", text))
        kana = len(re.findall("[\u3040-\u30ff]", text))
        words = len(re.findall(r"[^\W\d_]+", re.sub(f"[{HAN}]", " ", text)))
        votes += 1 if han > words + 3 * kana else -1
    return votes > 0


# Texts to tokens.


@lru_cache(maxsize=1024)
def tokens(text: str) -> tuple[Token, ...]:
    """Cut a text into its tokens; what parts phrases stands among them as a GAP."""
    found: list[Token] = []
    starts = True
    before = ""
    for piece in _PIECE.finditer(text):
        kind, written = str(piece.lastgroup), piece[0]
        if kind == "han":
            found += _chinese(written)
            starts, before = False, ""
        elif kind == "word":
            token = _word(written, starts=starts, before=before)
            found.append(token)
            starts, before = False, written.lower()
        elif not (written == "." and before in lexicon.ENGLISH_TITLES):
            found.append(Token(written, written, Role.GAP))
            starts = starts or kind == "end"
            before = ""
    return tuple(found)


def _word(written: str, *, starts: bool, before: str) -> Token:
    text = re.sub(r"['’]s?$", "", written)
    low = text.lower()
    if low in lexicon.ENGLISH_FUNCTION or low in lexicon.ENGLISH_TITLES or len(text) < 2:
        return Token(text, low, Role.GAP, before=before)
    if (
        low in lexicon.UNITS
        or _AMOUNT.fullmatch(text)
        or not any(c.isalpha() for c in text)
    ):
        return Token(text, low, Role.GAP, before=before)
    if _is_identifier(text):
        return Token(text, low, Role.NAME, 1.0, before)
    weight = _weight(low)
    if text[0].isupper() and weight > 0.3:
        return Token(text, _singular(low), Role.CAPITAL if starts else Role.NAME, weight, before)
    return Token(text, _singular(low), Role.WORD, weight, before)


def _is_identifier(text: str) -> bool:
    if _CAPITALS.fullmatch(text):
        return True
    return bool(re.search(r"[\d_./@+#]", text)) and any(c.isalpha() for c in text)


def _weight(low: str) -> float:
    if low in lexicon.ENGLISH_NOISE:
        return 0.15
    if low in lexicon.ENGLISH_COMMON_VERBS:
        return 0.3
    return 0.5 if low.endswith("ed") or low.endswith("ly") else 1.0


def _singular(low: str) -> str:
    if len(low) > 4 and low.endswith("ies"):
        return low[:-3] + "y"
    if len(low) > 4 and low.endswith(("ches", "shes", "sses", "xes")):
        return low[:-2]
    if len(low) > 3 and low.endswith("s") and not low.endswith(("ss", "us", "is")):
        return low[:-1]
    return low


def _chinese(run: str) -> Iterator[Token]:
    for word, tag in rjieba.tag(run):
        yield _chinese_word(word, tag)


def _chinese_word(word: str, tag: str) -> Token:
    if len(word) == 1:
        gap = word in lexicon.CHINESE_FUNCTION_CHARACTERS or tag[0] in "pcurmqdyof"
        return Token(word, word, Role.GAP if gap else Role.GLUE, 0.4)
    if tag == "t" and word[0] in "老小阿":
        return Token(word, word, Role.NAME)
    if not tag.startswith(_MEANING) or word in lexicon.CHINESE_FUNCTION or _is_time(word, tag):
        return Token(word, word, Role.GAP)
    known = rjieba.has_word(word)
    if not known and word[0] in lexicon.CHINESE_SLIPS:
        return Token(word, word, Role.GAP)  # Words the tagger made up: 没存, 要用.
    if word in lexicon.CHINESE_NOISE:
        return Token(word, word, Role.WORD, 0.15)
    if _is_chinese_name(word, tag):
        return Token(word, word, Role.NAME)
    if tag[0] in "njl" or tag == "vn":
        return Token(word, word, Role.WORD)
    return Token(word, word, Role.WORD, 0.8 if known else 0.6)


def _is_time(word: str, tag: str) -> bool:
    return tag == "t" or any(time in word for time in lexicon.CHINESE_TIME)


def _is_chinese_name(word: str, tag: str) -> bool:
    if tag == "nr":
        return word[0] in lexicon.CHINESE_SURNAMES
    return tag in {"ns", "nt", "nrt"} or (tag == "nz" and len(word) > 3)


# Tokens to terms.


class Window:
    """The terms of several texts."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = texts
        self.tokens = settled([tokens(text) for text in texts])
        self.terms = _terms(self.tokens)

    def of(self, place: int) -> list[Term]:
        """The terms of one memory, in the order in which they were first seen."""
        return [term for term in self.terms if place in term.places]

    def likeness(self, one: int, other: int) -> float:
        """How alike two memories are word by word, 0 to 1; numbers count for nothing."""
        first, second = (
            {token.key for token in self.tokens[place] if token.role is not Role.GAP}
            for place in (one, other)
        )
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
            leads = follower is not None and follower.role is Role.NAME and follower.text.isalpha()
            acts = token.key.endswith(("ed", "ing"))
            if token.key in names or ((again or leads) and not acts and not token.text.isupper()):
                return _as(token, Role.NAME, token.key)
            token = _as(token, Role.WORD, token.key)
        if token.role is Role.WORD:
            return _as(token, Role.WORD, _base(token.key, known))
        return token

    return [
        [settle(token, after) for token, after in zip(text, (*text[1:], None), strict=True)]
        for text in texts
    ]


def _as(token: Token, role: Role, key: str) -> Token:
    return Token(token.text, key, role, token.weight, token.before)


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
            for start, end in combinations(range(len(run) + 1), 2):
                if end - start <= PHRASE:
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
        nouns = thing or not run[0].text.isascii()
        nouns = nouns and all(token.weight == 1.0 for token in run)
        sightings.whole = sightings.whole or (start == 0 and 1 < len(run) <= 3 and nouns)


def _together(weights: list[float]) -> float:
    """A phrase says a little more than its best word, and far less with noise in it."""
    mean = sum(weights) / len(weights)
    return mean * (1.0 if len(weights) == 1 else 1.25)


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
    text = text if name else _lowered(text)
    return Term(
        key, text, frozenset(sightings.places), weight, name,
        article=latin and sightings.articles > 0 and not (name and len(key) == 1),
    )  # fmt: skip


def _lowered(text: str) -> str:
    """Undo the capital of a sentence's start."""
    return text[0].lower() + text[1:] if text[1:2].islower() else text


def written(phrase: Sequence[Token]) -> str:
    """Write a phrase as its script does: Chinese together, other words apart."""
    text = ""
    for token in phrase:
        han = re.match(f"[{HAN}]", token.text)
        together = not text or (han and re.search(f"[{HAN}]$", text))
        text += token.text if together else f" {token.text}"
    return text


def spaced(text: str) -> str:
    """Set a space between Chinese and Latin letters or digits, as careful typists do."""
    text = re.sub(f"([{HAN}])([A-Za-z0-9])", r"\1 \2", text)
    return re.sub(f"([A-Za-z0-9])([{HAN}])", r"\1 \2", text)


_QUOTED = re.compile(r"[“「『《]([^“”「」『』《》\n]{2,20})[”」』》]|(?<!\w)\"([^\"\n]{2,20})\"")


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
