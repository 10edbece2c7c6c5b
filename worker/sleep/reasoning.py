"""Telling an answer from the reasoning that leaks into it.

What is certain goes: blocks in tags that are closed, and all before a closing tag that was never
opened. What is not certain makes the answer none: a block that is never closed, headers such as
"Thinking process:", numbered bold steps, talk about the task. Only a last line labelled as the
final answer is taken out of those.
"""

import re

from worker.errors import AnswerError

_NAMES = (
    "think|thinking|thought|thoughts|reason|reasoning|reflection|analysis|scratchpad"
    "|internal_monologue|inner_monologue|chain_of_thought|cot"
)
#: Tags by which models set their reasoning apart: XML-like, Magistral's [THINK], Kimi's ◁think▷.
_TAG = re.compile(
    rf"<\s*(?P<end>/?)\s*(?:{_NAMES})(?:\s[^<>]{{0,100}})?>"
    r"|\[(?P<end2>/?)THINK\]"
    r"|◁(?P<end3>/?)think▷",
    re.IGNORECASE,
)
#: The channels of OpenAI's harmony format, where a server hands them on unparsed.
_FINAL_CHANNEL = re.compile(r"<\|channel\|>\s*final\b[^<]{0,100}<\|message\|>")
_SPECIAL = re.compile(r"<\|[a-z_]{1,30}\|>")

UNCLOSED = "reasoning that never came to an answer"
MIXED = "the answer cannot be told apart from the reasoning"


def without_blocks(text: str) -> str:
    """Take out reasoning in tags. Raises AnswerError where a block is never closed."""
    text = _final_channel(text)
    kept: list[str] = []
    at = 0
    inside = False
    for tag in _TAG.finditer(text):
        closing = bool(tag["end"] or tag["end2"] or tag["end3"])
        if not inside:
            # Before a closing tag without an opening one, all was reasoning.
            kept = [] if closing else [*kept, text[at : tag.start()]]
        inside = not closing
        at = tag.end()
    if inside:
        raise AnswerError(UNCLOSED)
    return "".join([*kept, text[at:]])


def _final_channel(text: str) -> str:
    if "<|" not in text:
        return text
    final = list(_FINAL_CHANNEL.finditer(text))
    if final:
        text = text[final[-1].end() :]
    elif "<|channel|>" in text:
        raise AnswerError(UNCLOSED)
    return _SPECIAL.sub("", text)


_FENCE = re.compile(r"```[^\n`]{0,30}\n(.*?)(?:\n[ \t]*)?```", re.DOTALL)


def unfenced(text: str) -> str:
    """Take the inside of the only ``` fence in a text; other texts come back as they are."""
    fences = _FENCE.findall(text)
    return fences[0].strip() if len(fences) == 1 else text


_MARKUP = r"[\s#>*_\-]{0,8}"
_HEADER = re.compile(
    rf"^{_MARKUP}(?:(?:here(?:'s|’s| is) )?(?:a |my |the )?"
    r"(?:thinking|thought|reasoning)(?: process[^\n:：]{0,60}| steps?| trace)?"
    r"|chain of thought|analysis|step[- ]by[- ]step(?: analysis)?|draft(?: \d+)?|self[- ]?check"
    r"|思考(?:过程)?|推理(?:过程)?|分析(?:过程)?|思路|草稿)[\s*_]{0,4}[:：]",
    re.IGNORECASE | re.MULTILINE,
)
_BOLD_STEP = re.compile(r"^[ \t]*(?:\d{1,3}[.)、]|[-*•])\s*\*\*[^*\n]{1,200}\*\*", re.MULTILINE)
_NUMBERED = re.compile(
    r"^[ \t]*(?:step[ \t]*)?\d{1,3}[.):、][ \t]*\S", re.MULTILINE | re.IGNORECASE
)
_TASK = r"(?:memor(?:y|ies)|pattern|insight|sentence|answer|connection|json|task|output)"
_TASK_ZH = r"(?:记忆|规律|模式|洞察|句话|句子|答案|任务|输出)"
#: How a model talks to itself about its task.
_TALK = re.compile(
    r"^\W{0,4}(?:"
    r"(?:okay|ok|alright|hmm+|wait|so)\b[,.!… ]{1,6}(?:so|let|the user|i|we|first|now)\b"
    r"|(?:first,? |now,? |so,? )?let(?:'s|’s| me| us) (?:think|analy[sz]e|see|look|start"
    r"|break|consider|read|review|go through|list|identify|find|check|draft|try)\b"
    r"|(?:first,? |now,? |so,? )?(?:i|we)(?:'ll|’ll| will| need to| have to| should| must"
    rf"| am going to| can| want to) [^\n]{{0,60}}\b{_TASK}s?\b"
    r"|the (?:user|task|prompt|question|instructions?) (?:wants?|asks?|asked|says?|requires?"
    rf"|is asking) [^\n]{{0,60}}\b{_TASK}s?\b"
    r"|(?:好的|嗯|首先)?[，,。 ]{0,2}(?:让我|让我们|我们?需要|我们?来|我们?要|我应该)"
    rf"[^\n]{{0,30}}{_TASK_ZH}"
    r"|(?:好的|嗯|首先)[，,。 ]{0,2}(?:让我|我来|我需要|我们来|我先)"
    rf"|(?:好的|嗯)?[，,。 ]{{0,2}}(?:用户|题目|任务)(?:要求|希望|让|想要)[^\n]{{0,30}}{_TASK_ZH}"
    r")",
    re.IGNORECASE | re.MULTILINE,
)
#: The prompt's own words, which a thinking model repeats to itself.
ECHOED = (
    "280 characters",
    "one or two sentences",
    "no single memory states",
    "[#...]",
    "step: insight",
)
_ECHO = re.compile("|".join(map(re.escape, ECHOED)), re.IGNORECASE)
_FINAL = re.compile(
    rf"^{_MARKUP}(?:final (?:answer|insight|sentence|output|response)"
    r"|最终(?:答案|洞察|结论|回答))[\s*_]{0,4}[:：]",
    re.IGNORECASE | re.MULTILINE,
)


def without_steps(text: str) -> str:
    """Take the answer out of reasoning that stands in no tags.

    Raises AnswerError where there are marks of reasoning and no last line labelled as final.
    """
    if not is_reasoning(text):
        return text
    final = list(_FINAL.finditer(text))
    answer = text[final[-1].end() :].strip(" \n*_") if final else ""
    if not answer or "\n" in answer or is_reasoning(answer):
        raise AnswerError(MIXED)
    return answer


def is_reasoning(text: str) -> bool:
    """Whether a text bears marks of reasoning."""
    marks = (_HEADER, _BOLD_STEP, _TALK, _ECHO)
    if any(mark.search(text) for mark in marks):
        return True
    return len(_NUMBERED.findall(text)) > 1


_LABEL = re.compile(
    rf"^{_MARKUP}(?:(?:here(?:'s|’s| is) )?(?:the |one |an |a |final |key ){{0,3}}"
    r"(?:insight|pattern|answer|output|sentence|summary)"
    r"|(?:最终)?(?:洞察|洞见|规律|模式|结论|总结|答案|回答))[\s*_]{0,4}[:：][\s*_]{0,4}",
    re.IGNORECASE,
)
_PREAMBLE = re.compile(
    r"^(?:sure|certainly|of course|here(?:'s|’s| is| are)|好的|当然|以下是|这是)"
    r"[^\n]{0,80}[:：]\s*\n",
    re.IGNORECASE,
)
_QUOTES = (('"', '"'), ("“", "”"), ("「", "」"), ("『", "』"), ("'", "'"), ("‘", "’"), ("«", "»"))
_EMPHASIS = ("***", "**", "*", "__", "_", "`")
_BULLET = re.compile(r"^(?:[-•>]|#{1,6})\s+")
#: Layers of marks around a sentence, e.g. a label, then quotation marks, then emphasis.
_LAYERS = 8


def bare(text: str) -> str:
    """Strip what stands around a sentence: preamble, label, bullet, emphasis, quotation marks."""
    text = _PREAMBLE.sub("", text.strip())
    for _ in range(_LAYERS):
        before = text
        text = _LABEL.sub("", text).strip()
        text = _BULLET.sub("", text)
        for mark in _EMPHASIS:
            text = _unwrapped(text, mark, mark)
        for left, right in _QUOTES:
            text = _unwrapped(text, left, right)
        if text == before:
            break
    return text


def _unwrapped(text: str, left: str, right: str) -> str:
    """Take off a pair of marks that encloses the whole text, and nothing less than it."""
    inner = text[len(left) : -len(right)]
    if text.startswith(left) and text.endswith(right) and inner.strip():
        return inner.strip() if left not in inner and right not in inner else text
    return text


_NOTHING = re.compile(
    r"^(?:(?:none|nothing|n/a|null|无|没有|暂无)\W*$"
    r"|(?:there (?:is|are) )?no (?:\w+ ){0,2}(?:patterns?|insights?)\b"
    r"|(?:这些记忆(?:中|里)?)?(?:没有|无|未)(?:发现|明显的?|任何|这样的?|共同的?){0,2}(?:规律|模式|洞察))",
    re.IGNORECASE,
)
_REFUSAL = re.compile(
    r"^(?:i(?:'m|’m| am) (?:sorry|unable)|sorry,|i (?:can't|can’t|cannot|won't)\b|as an ai\b"
    r"|unfortunately,? i\b|抱歉|对不起|很遗憾|作为(?:一个)?(?:ai|人工智能)|我无法)",
    re.IGNORECASE,
)


def is_refusal(text: str) -> bool:
    """Whether a model declines instead of answering."""
    return bool(_REFUSAL.match(text))


def says_nothing(text: str) -> bool:
    """Whether a model says that it found no pattern."""
    return bool(_NOTHING.match(text))
