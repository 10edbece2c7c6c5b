"""How the offline stand-in words what it counted, in English or Chinese.

It counts in words that are no numbers (several, more than once), so that no number stands in an
insight that is in no memory.
"""

from collections.abc import Mapping, Sequence

from worker.sleep.terms import Term
from worker.sleep.tokens import spaced

#: The clip of a durable text: an insight stays within it.
MAX_INSIGHT = 280
MAX_TERM = 60

_KINDS = {
    "decision": ("a decision", "decisions", "决定"),
    "preference": ("a preference", "preferences", "偏好"),
    "fact": ("a fact", "facts", "事实"),
    "skill": ("a skill", "skills", "做法"),
}


def relationship(shared: Sequence[Term], *, chinese: bool) -> str:
    """Say what two memories share."""
    if chinese:
        return spaced(f"都涉及{_chinese_list([_short(term.text) for term in shared])}")
    return f"both concern {_english_list([_short(term.spoken) for term in shared])}"


def insight(
    subject: Term,
    *,
    kinds: Mapping[str, int],
    several_days: bool,
    companions: Sequence[Term],
    second: Term | None,
    chinese: bool,
) -> str:
    """Word an insight in at most 280 characters, with fewer terms where it would be longer."""
    word = _chinese if chinese else _english
    for count in range(len(companions), -1, -1):
        for other in (second, None):
            text = word(subject, kinds, several_days, companions[:count], other)
            if len(text) <= MAX_INSIGHT:
                return text
    return word(subject, {}, several_days, (), None)


def _english(
    subject: Term,
    kinds: Mapping[str, int],
    several_days: bool,
    companions: Sequence[Term],
    second: Term | None,
) -> str:
    many = len(subject.places) > 2
    text = "Several memories" if many else "Separate memories"
    text += " from different days" if several_days else ""
    if kinds:
        named = [_KINDS[kind][0 if count == 1 else 1] for kind, count in kinds.items()]
        text += f", {_english_list(named)} among them,"
    text += " keep coming back to " if many else " return to "
    text += _short(subject.spoken)
    if companions:
        named = [_short(term.spoken) for term in companions]
        text += ", each from another side: " if len(named) > 1 else ", along with "
        text += _english_list(named)
    text += "."
    if second is not None:
        text += f" Others return to {_short(second.spoken)}."
    return text


def _chinese(
    subject: Term,
    kinds: Mapping[str, int],
    several_days: bool,
    companions: Sequence[Term],
    second: Term | None,
) -> str:
    many = len(subject.places) > 2
    text = "不同日子的" if several_days else ""
    text += "多条记忆" if many else "记忆"
    if kinds:
        text += f"（其中有{_chinese_list([_KINDS[kind][2] for kind in kinds])}）"
    text += "都绕不开" if many else "先后提到"
    text += _short(subject.text)
    if companions:
        text += "，分别牵涉" if len(companions) > 1 else "，并牵涉"
        text += _chinese_list([_short(term.text) for term in companions])
    text += "。"
    if second is not None:
        text += f"另有记忆反复提到{_short(second.text)}。"
    return spaced(text)


def _english_list(words: Sequence[str]) -> str:
    return ", ".join(words[:-1]) + " and " + words[-1] if len(words) > 1 else "".join(words)


def _chinese_list(words: Sequence[str]) -> str:
    return "、".join(words[:-1]) + "和" + words[-1] if len(words) > 1 else "".join(words)


def _short(term: str) -> str:
    return term if len(term) <= MAX_TERM else term[: MAX_TERM - 1] + "…"
