"""Texts: cut them to a limit, and split them into the terms that recall compares."""

import re
import unicodedata

ELLIPSIS = "…"

#: Marks in a row that a text may have, as in Unicode's stream-safe format (UAX 15): to bring a
#: longer row into order takes time with the square of its length.
_PILE = 30

#: Combining marks, which `\w` leaves out. First plane only: farther ones would slow every search,
#: and a word they split is split alike in query and memory.
_MARKS = "".join(
    mark for mark in map(chr, range(0x300, 0x10000)) if unicodedata.category(mark)[0] == "M"
)
#: Blocks of scripts written without spaces, with some punctuation between their letters: CJK signs,
#: kana and bopomofo; Thai and Lao; Myanmar; Khmer; Tai Le, New Tai Lue; Tai Tham; Myanmar's
#: extensions; Tai Viet.
_BLOCKS = (
    (0x3000, 0x31FF), (0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0x1950, 0x19FF),
    (0x1A20, 0x1AAF), (0xA9E0, 0xA9FF), (0xAA60, 0xAADF),
)  # fmt: skip
#: Their letters and marks; then Hangul, Han, rare kana, rare Han.
_UNSPACED = (
    "".join(
        letter
        for first, last in _BLOCKS
        for letter in map(chr, range(first, last + 1))
        if letter.isalnum() or letter in _MARKS
    )
    + "\u1100-\u11ff\ua960-\ua97f\uac00-\ud7ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    + "\U0001aff0-\U0001b16f\U00020000-\U0003ffff"
)
_IS_UNSPACED = re.compile(f"[{_UNSPACED}]")
#: What stands between two breaks: a run of a script without spaces, or a word with its marks.
#: Nothing is ever matched twice, so the time is linear.
_RUN = re.compile(rf"[{_UNSPACED}]++|[^\W_{_UNSPACED}]++(?:[{_MARKS}]++[^\W_{_UNSPACED}]*+)*+")
_ASCII_WORD = re.compile("[a-z0-9]+")

#: Unicode's Default_Ignorable_Code_Point (zero-width characters, soft hyphens, variation selectors,
#: directions ...): nobody sees them, so they must not split a word.
_UNSEEN = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff]"
)
#: A pile of marks, and of other characters that are part of no term, which may go with it.
_PILED = re.compile(rf"[^\w\x00-\u02ff][^\w\x00-\u02ff]{{{_PILE},}}")


def clip(text: str, limit: int) -> str:
    """A text longer than `limit` code points cut there, with one `…` behind; else unchanged."""
    return text if len(text) <= limit else text[:limit] + ELLIPSIS


def terms(text: str) -> list[str]:
    """The terms of a text, in order, repeats included. Queries and memories are split alike.

    Words of letters and digits, whatever their case, width or way of composing accents; an
    underscore splits. In scripts without spaces every character, then every pair of neighbours.
    Takes time linear in the length.
    """
    if text.isascii():
        return _ASCII_WORD.findall(text.lower())
    found: list[str] = []
    for run in _RUN.findall(_folded(text)):
        if _IS_UNSPACED.match(run):
            found.extend(run)
            found.extend(run[at : at + 2] for at in range(len(run) - 1))
        else:
            found.append(run)
    return found


def _folded(text: str) -> str:
    """One form for all that reads the same: NFKC before and after case folding."""
    seen = _UNSEEN.sub("", text)
    # The two half-width marks of kana count as letters until NFKC, and could pile up unnoticed.
    seen = seen.replace("\uff9e", "\u3099").replace("\uff9f", "\u309a")
    seen = _PILED.sub(lambda pile: pile[0][:_PILE], seen)
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", seen).casefold())
