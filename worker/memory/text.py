"""Texts: cut them to a limit, and split them into the terms that recall compares."""

import re
import unicodedata

ELLIPSIS = "…"

#: Scripts written without spaces: Han, kana, Hangul, Thai, Lao, Khmer, Myanmar.
_UNSPACED = (
    "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\uac00-\ud7af\u1100-\u11ff\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\U00020000-\U0003ffff"
)
_RUN = re.compile(rf"[{_UNSPACED}]+|(?:(?![{_UNSPACED}_])[\w\u0300-\u036f])+")
_IS_UNSPACED = re.compile(rf"[{_UNSPACED}]")
#: Zero-width characters and the soft hyphen: nobody sees them, so they must not split a word.
_UNSEEN = re.compile("[\u00ad\u200b-\u200f\u2060-\u2064\ufeff]")


def clip(text: str, limit: int) -> str:
    """A text longer than `limit` code points cut there, with one `…` behind; else unchanged."""
    return text if len(text) <= limit else text[:limit] + ELLIPSIS


def terms(text: str) -> list[str]:
    """The terms of a text, in order, repeats included.

    Words of letters and digits, case-folded in the form NFKC; in scripts without spaces every
    character and every pair of neighbours. Queries and memories are split alike.
    """
    folded = unicodedata.normalize("NFKC", _UNSEEN.sub("", text)).casefold()
    found: list[str] = []
    for run in _RUN.findall(folded):
        if _IS_UNSPACED.match(run):
            found.extend(run)
            found.extend(run[at : at + 2] for at in range(len(run) - 1))
        else:
            found.append(run)
    return found
