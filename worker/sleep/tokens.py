"""From texts to words: what each says, and what parts one phrase from the next.

English and other scripts with spaces are cut at spaces; Chinese by rjieba, whose dictionary also
tells nouns from function words.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto

import rjieba

from worker.sleep import lexicon

KATAKANA = "\u30a0-\u30ff"
HIRAGANA = "\u3040-\u309f"
HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
#: A longer word is no word: a key, an encoded file.
MAX_WORD = 64

_LETTER = rf"(?:(?![{HAN}{HIRAGANA}{KATAKANA}])\w)"
_PIECE = re.compile(
    rf"(?P<link>https?://[^\s{HAN}]+)"
    rf"|(?P<han>[{HAN}]+)"
    rf"|(?P<katakana>[{KATAKANA}]+)"
    rf"|(?P<particle>[{HIRAGANA}]+)"
    rf"|(?P<word>{_LETTER}+(?:[-.'’/@+]{_LETTER}+)*(?:\+\+|#(?!\w))?)"
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
        elif kind == "katakana":
            found.append(Token(written, written, Role.WORD))
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
    if re.search(r"['’](?:d|ll|ve|re|m|t)$", text, re.IGNORECASE):
        return Token(text, text.lower(), Role.GAP, before=before)
    low = text.lower()
    if (
        low in lexicon.ENGLISH_FUNCTION
        or low in lexicon.ENGLISH_TITLES
        or not 2 <= len(text) <= MAX_WORD
    ):
        return Token(text, low, Role.GAP, before=before)
    if low in lexicon.UNITS or _AMOUNT.fullmatch(text) or not any(c.isalpha() for c in text):
        return Token(text, low, Role.GAP, before=before)
    if _is_identifier(text):
        return Token(text, low, Role.NAME, 1.0, before)
    weight = weight_of(low)
    if text[0].isupper() and weight > 0.3:
        return Token(text, _singular(low), Role.CAPITAL if starts else Role.NAME, weight, before)
    return Token(lowered(text) if starts else text, _singular(low), Role.WORD, weight, before)


def _is_identifier(text: str) -> bool:
    if _CAPITALS.fullmatch(text):
        return True
    return bool(re.search(r"[\d_./@+#]", text)) and any(c.isalpha() for c in text)


def weight_of(low: str) -> float:
    """How much an English word says, 0 to 1, by the word alone."""
    if low in lexicon.ENGLISH_NOISE:
        return 0.15
    if low in lexicon.ENGLISH_COMMON:
        return 0.3
    if low.endswith(("ed", "ly")):
        return 0.5
    return 0.8 if low.endswith("ing") else 1.0


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
    if word[0] in "不没" or (not known and word[0] in lexicon.CHINESE_SLIPS):
        return Token(word, word, Role.GAP)  # Words the tagger made up: 没存, 要用.
    if word in lexicon.CHINESE_NOISE:
        return Token(word, word, Role.WORD, 0.15)
    if _is_chinese_name(word, tag):
        return Token(word, word, Role.NAME)
    if tag[0] in "njl" or tag == "vn":
        return Token(word, word, Role.WORD)
    weight = 0.5 if tag[0] in "absz" else 0.8
    return Token(word, word, Role.WORD, weight if known else weight * 0.75)


def _is_time(word: str, tag: str) -> bool:
    return tag == "t" or any(time in word for time in lexicon.CHINESE_TIME)


def _is_chinese_name(word: str, tag: str) -> bool:
    if tag == "nr":
        return word[0] in lexicon.CHINESE_SURNAMES
    if tag in {"ns", "nt", "nrt"}:
        return word not in lexicon.CHINESE_NO_PLACES
    return tag == "nz" and len(word) > 3


def lowered(text: str) -> str:
    """Undo the capital of a sentence's start."""
    return text[0].lower() + text[1:] if text[1:2].islower() else text


def written(phrase: Sequence[Token]) -> str:
    """Write a phrase as its script does: Chinese together, other words apart."""
    text = ""
    for token in phrase:
        together = not text or (is_han(text[-1]) and is_han(token.text[0]))
        text += token.text if together else f" {token.text}"
    return text


def is_han(character: str) -> bool:
    """Whether a character is a Chinese one."""
    return (
        "\u4e00" <= character <= "\u9fff"
        or "\u3400" <= character <= "\u4dbf"
        or ("\uf900" <= character <= "\ufaff")
    )


def spaced(text: str) -> str:
    """Set a space between Chinese and Latin letters or digits, as careful typists do."""
    text = re.sub(f"([{HAN}])([A-Za-z0-9])", r"\1 \2", text)
    return re.sub(f"([A-Za-z0-9])([{HAN}])", r"\1 \2", text)


def is_chinese(texts: Iterable[str]) -> bool:
    """Whether more memories are Chinese than not; a Chinese character counts as a word."""
    votes = 0
    for text in texts:
        han = len(re.findall(f"[{HAN}]", text))
        kana = len(re.findall("[\u3040-\u30ff]", text))
        words = len(re.findall(r"[^\W\d_]+", re.sub(f"[{HAN}]", " ", text)))
        votes += 1 if han > words + 3 * kana else -1
    return votes > 0
