"""ResponseHealth: whether an answer is an answer at all. The default evaluator of a bare ``@monitor``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar

from agenteval_otel.evaluators.base import CriterionEvaluator, Execution
from agenteval_otel.models import EvaluationInput, Score

_LOOKED_AT = 360
_APOSTROPHES = str.maketrans({"\u2019": "'", "\u02bc": "'", "\u2018": "'", "\u00b4": "'"})

_DECORATION = "\"'*_#>([ -"

_UNABLE = (
    r"(?: cannot| can't| can not| couldn't| won't be able to| won't| will not be able to| will not| do not feel able to"
    r"|(?:'m| am) (?:unable|not able|not allowed|not permitted|not going|not willing|not authorized) to"
    r"|(?:'m| am) not comfortable| don't feel comfortable| do not feel comfortable)"
)
_SOFTLY = r"(?: (?:really|simply|just|ethically|in good conscience|directly|therefore|also|possibly|actively))?"
# What a model says it will not do; each may go on ("provid-e", "provid-ing").
_HELPING = (
    r"(?:help(?! but)|assist|provid|fulfil|comply|complet|satisfy|support|advis|advoc|recommend(?!.{0,60} enough)"
    r"|suggest|encourag|promot|endors|condon|engage|engaging|participat|creat|generat|writ|produc|answer|respond"
    r"|discuss|shar|giv|offer|tell you(?! how)|teach|guid|instruct|continue|do that|do this|do so|accommodat|proceed"
    r"|facilitat|justif|disclos|reveal|agree|entertain|speculat|make (?:jokes|arguments|generali)|accept)"
)
# "I cannot give an exact number, but roughly ..." answers.
_EXACTLY = r"(?!\w* (?:you )?(?:with )?(?:an? |the |any )?(?:exact|precise|definitive|definite|complete|exhaustive))"
_WRONG = r"(?:appropriate|ethical|acceptable|respectful|responsible)"
_UNWELCOME = (
    rf"(?:it(?:'s| is| would be| would) (?:not|never|neither)(?: be)?|i (?:don't|do not) think (?:it|that)(?:'s| is))"
    rf"(?: (?:generally|ever))? (?:[a-z]+(?:,| or| and| nor) (?:or )?)?{_WRONG}\b"
    rf"|it(?:'s| is| would be) (?:highly |deeply )?(?:inappropriate|unethical|illegal and unethical)"
)

# The space in front is there for speed: the engine skips from one " i" to the next.
_OF_ONESELF = re.compile(
    rf" i(?:{_UNABLE}{_SOFTLY} {_HELPING}{_EXACTLY}"
    r"|(?: must| have to| need to| will have to|'ll have to) (?:respectfully |politely )?(?:decline|refuse)\b"
    r"| (?:respectfully |politely )?(?:decline|refuse) to\b"
    r"| (?:do not|don't) have access to (?:personal|private|confidential) (?:data|information)"
    r"|(?:'d| would) (?:rather|prefer) not\b)"
)
_OF_RULES = re.compile(
    r"\b(?:against|within|violates?) my (?:programming|guidelines|ethic|polic|principles|content|safety)"
)
_OF_THINGS = re.compile(r"\bnot something (?:that )?i(?:'m| am| can| will)\b")
_AT_START = re.compile(
    r"(?:(?:no|sorry|i apologize|apologies|i'm sorry|i am sorry|i'm really sorry|unfortunately|hello|hi)[,.!]? "
    r"(?:but )?)?"
    rf"(?:{_UNWELCOME}"
    r"|i (?:must|have to) (?:respectfully )?(?:decline|refuse)"
    r"|(?:this|that|your|the) (?:request|question|content) (?:violates|goes against|is (?:inappropriate|unethical)))"
)


def is_refusal(text: str) -> bool:
    """Whether an answer opens by declining the request; one that is sorry and then helps does not."""
    head = text[:_LOOKED_AT]
    if not head.isascii():
        head = head.translate(_APOSTROPHES)
    head = " ".join(head.lower().split()).lstrip(_DECORATION)
    return (
        _AT_START.match(head) is not None
        or _OF_ONESELF.search(" " + head) is not None
        or (" my " in head and _OF_RULES.search(head) is not None)
        or ("not something" in head and _OF_THINGS.search(head) is not None)
    )


_REASONING = {
    "handler_error": "the handler raised instead of answering",
    "unfinished_stream": "the stream broke off",
    "empty": "the answer has no visible text",
    "truncated": "the answer stops in the middle",
    "refusal": "the answer declines the request",
    "error_text": "the answer is an error message",
}
_CUT_OFF = frozenset({"length", "max_tokens", "max_output_tokens", "model_length", "token_limit", "incomplete",
                      "model_context_window_exceeded"})  # fmt: skip
_WITHHELD = frozenset({"refusal", "content_filter", "content_filtered", "safety", "guardrail_intervened",
                       "prohibited_content", "blocklist"})  # fmt: skip

_HEAD, _TAIL = 1024, 512
_LONG_ENOUGH_TO_BREAK_OFF = 200
_LONG_LINE = 40
# Zero-width and joining marks, soft hyphen, byte order mark, Braille blank, Hangul fillers: all invisible.
_INVISIBLE = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\u2800\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0"
)
_VISIBLE = re.compile(rf"[^\s\x00-\x1f\x7f-\x9f{_INVISIBLE}]")
_FENCE = re.compile(r"^[ \t]*```", re.MULTILINE)
_BROKEN_OFF = re.compile(r"(?:[,(\[{:]|[ \n](?:a|an|and|because|but|by|for|from|of|or|that|the|their|to|with|your))$")

_ERROR_START = re.compile(
    r"Traceback \(most recent call last\)"
    r"|Exception in thread \"|panic: |Fatal error: |Unhandled (?:exception|rejection)"
    r"|(?:[A-Za-z_][\w]*\.)*[A-Z]\w*(?:Error|Exception): \S"
    r"|(?:HTTP/\d(?:\.\d)? |HTTP |Error:? |Status:? )?(?:Internal Server Error|Service Unavailable|Bad Gateway"
    r"|Gateway Time-?out|Too Many Requests|[45]\d\d (?:[A-Z][a-z]+ ?){1,4}(?:[.\n]|$))"
    r"|(?:ERROR|Error|error)(?: code)?: ?\S"
)
_ERROR_SENTENCE = re.compile(
    r"(?:(?:oops|sorry|apologies)[,!.]? )?(?:an? (?:internal |unexpected |unknown |server )*error (?:has )?occurred"
    r"|something went wrong|request (?:failed|timed out)|(?:the )?server is (?:currently )?overloaded"
    r"|rate limit (?:reached|exceeded)|upstream (?:connect|request) )",
    re.IGNORECASE,
)
_SHORT = 400
_ERROR_KEY = re.compile(
    r'\s*\{\s*"(?:error|errors|exception|error_message|errorMessage)"\s*:(?!\s*(?:null\b|false\b|""|\[\s*\]|\{\s*\}))'
)
_ERROR_PAGE = re.compile(
    r"<(?:title|h1)[^>]{0,80}>\s*"
    r"(?:error\b|[45]\d\d\b|[^<]{0,80}(?:error|bad gateway|not found|unavailable|forbidden))",
    re.IGNORECASE,
)
_PAGE_START = ("<!doctype html", "<html", "<head", "<?xml")


class ResponseHealth(CriterionEvaluator, type="ResponseHealth"):
    """True for an answer that is whole and is an answer; false with the reason otherwise.

    Reasons, the first that applies: ``handler_error`` (raised, and no text), ``unfinished_stream``, ``empty``,
    ``error_text``, ``refusal``, ``truncated``. Looks at the head and the tail of the text; an answer that is no text,
    such as a mapping, is healthy unless it is empty or an error object. Language-dependent signs are English.
    """

    evaluates_errors: ClassVar[bool] = True

    criterion_name: str = "response_health"
    scale: str = "binary"

    def preferred_execution(self) -> Execution | None:
        return "inline"

    def score(self, evaluation_input: EvaluationInput) -> Score:
        reason = _reason_of(evaluation_input)
        if reason is None:
            return Score(value=True, passed=True)
        return Score(value=False, passed=False, reason_code=reason, reasoning=_REASONING[reason])


def _reason_of(evaluation_input: EvaluationInput) -> str | None:
    text = evaluation_input.response_text or _content_of(evaluation_input.response)
    visible = _VISIBLE.search(text) is not None
    if evaluation_input.error_type is not None and not visible:
        return "handler_error"
    if evaluation_input.stream_end in ("error", "abandoned"):
        return "unfinished_stream"
    finish = (evaluation_input.finish_reason or "").lower()
    if finish in _WITHHELD:
        return "refusal"
    if not visible:
        if finish in _CUT_OFF:
            return "truncated"
        if evaluation_input.tool_calls:
            return None  # a turn that calls tools need not say anything
        return _reason_of_structure(evaluation_input.response)
    head = text[:_HEAD].lstrip()
    if _is_error_text(head, len(text)):
        return "error_text"
    if is_refusal(head):
        return "refusal"
    return "truncated" if finish in _CUT_OFF or _breaks_off(text) else None


def _content_of(response: Any) -> str:
    content = response.get("content") if isinstance(response, Mapping) else getattr(response, "content", None)
    return content if isinstance(content, str) else ""


def _reason_of_structure(response: Any) -> str | None:
    if response is None or isinstance(response, str) or (hasattr(response, "__len__") and len(response) == 0):
        return "empty"
    if not isinstance(response, Mapping):
        return None
    if isinstance(response.get("role"), str) and not response.get("contentParts"):
        return None if response.get("toolCalls") or response.get("tool_calls") else "empty"
    return "error_text" if next(iter(response)) in ("error", "errors") and next(iter(response.values())) else None


def _is_error_text(head: str, length: int) -> bool:
    if head.startswith("{"):
        return _ERROR_KEY.match(head) is not None
    if head.startswith("<"):
        return head[:16].lower().startswith(_PAGE_START) and _ERROR_PAGE.search(head) is not None
    if _ERROR_START.match(head):
        # A word and a colon may open an explanation; messages of a program that stand alone are short.
        return length <= _SHORT or head.startswith(("Traceback", "Exception in thread", "panic: "))
    return length <= _SHORT and _ERROR_SENTENCE.match(head) is not None


def _breaks_off(text: str) -> bool:
    if "`" in text and text.count("```") % 2 and len(_FENCE.findall(text)) % 2:
        return True
    if len(text) < _LONG_ENOUGH_TO_BREAK_OFF:
        return False
    # A short last line may be a greeting ("Best regards,") or a heading.
    line = text[-_TAIL:].rstrip().rpartition("\n")[2]
    return len(line) >= _LONG_LINE and _BROKEN_OFF.search(line[-16:]) is not None
