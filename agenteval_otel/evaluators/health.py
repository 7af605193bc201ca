"""ResponseHealth: whether an answer is an answer at all.

The default evaluator of a bare ``@monitor``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar

from agenteval_otel.evaluators.base import CriterionEvaluator, Execution
from agenteval_otel.evaluators.refusal import outcome_of
from agenteval_otel.models import EvaluationInput, Score
from agenteval_otel.runtime.text import lazily

_REASONING = {
    "handler_error": "the handler raised instead of answering",
    "unfinished_stream": "the stream broke off",
    "empty": "the answer has no visible text",
    "truncated": "the answer stops in the middle",
    "refusal": "the answer declines the request",
    "error_text": "the answer is an error message",
    "policy_denial": "the answer denies the request by a rule of the operator's, or hands over",
    "needs_input": "the answer asks for what it needs first",
}
_HEALTHY = frozenset({"policy_denial", "needs_input"})


def _score_for(reason: str, reasoning: str) -> Score:
    healthy = reason in _HEALTHY
    return Score(value=healthy, passed=healthy, reason_code=reason, reasoning=reasoning)


_SCORES: dict[str | None, Score] = {None: Score(value=True, passed=True)}
_SCORES |= {reason: _score_for(reason, reasoning) for reason, reasoning in _REASONING.items()}
_CUT_OFF = frozenset(
    {
        "length",
        "max_tokens",
        "max_output_tokens",
        "model_length",
        "token_limit",
        "incomplete",
        "model_context_window_exceeded",
    }
)
_WITHHELD = frozenset(
    {
        "refusal",
        "content_filter",
        "content_filtered",
        "safety",
        "guardrail_intervened",
        "prohibited_content",
        "blocklist",
    }
)

_HEAD = 1024
_TAIL = 2048
_LONG_ENOUGH_TO_BREAK_OFF = 200
_LONG_LINE = 40
# Zero-width and joining marks, soft hyphen, byte order mark, Braille blank, Hangul fillers: all
# invisible.
_INVISIBLE = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\u2800\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0"
)
_VISIBLE = lazily(rf"[^\s\x00-\x1f\x7f-\x9f{_INVISIBLE}]")
_FENCE = lazily(r"^[ \t]*```", re.MULTILINE)
_BROKEN_OFF = lazily(
    r"(?:[,(\[{:]|[ \n](?:a|an|and|because|but|by|for|from|of|or|that|the|their|to|with|your))$"
)
# A label without its value, bold text without its end, an item's mark alone.
_OPEN = lazily(r":(?:\*\*)?$|\s\*\*[A-Z][^*\n`()]*$|\n\s*[-*+\u2022](?:\s*\*\*)?$")
# Tables, headings, code, addresses; what `key: value` says; a list in one line.
_NO_PROSE = lazily(r"\||^\s*#|^(?:\t| {4})|[=;{}<>]|(?:://|www\.|[@/\\])\S*$|:\s+\S+(?:\s\S+)?$")
_ITEM = lazily(r"\s*(?:[-*+\u2022]|\(?(?:\d{1,3}|[a-zA-Z])[.)])\s+")
_BARE_NUMBER = lazily(r"\s*\d{1,2}")
_SENTENCE_END = lazily(r"(?<=[a-z)\]\"'\d][.!?]) +(?=[\"'(\[*]*[A-Z])")
_CLOSING = lazily(
    r"(?i)(?:best|kind|warm|many|with|yours|sincerely|thank|cheers|regards|love|take care|greetings)\b"
)
_SHORT_ITEM = 12
_ENOUGH_WORDS = 5

_ERROR_START = lazily(
    r"Traceback \(most recent call last\)"
    r"|Exception in thread \"|panic: |Fatal error: |Unhandled (?:exception|rejection)"
    r"|(?:[A-Za-z_][\w]*\.)*[A-Z]\w*(?:Error|Exception): \S"
    r"|(?:HTTP/\d(?:\.\d)? |HTTP |Error:? |Status:? )?(?:Internal Server Error|Service Unavailable|Bad Gateway"
    r"|Gateway Time-?out|Too Many Requests|[45]\d\d (?:[A-Z][a-z]+ ?){1,4}(?:[.\n]|$))"
    r"|(?:ERROR|Error|error)(?: code)?: ?\S"
)
_ERROR_SENTENCE = lazily(
    r"(?:(?:oops|sorry|apologies)[,!.]? )?(?:an? (?:internal |unexpected |unknown |server )*error (?:has )?occurred"
    r"|something went wrong|request (?:failed|timed out)|(?:the )?server is (?:currently )?overloaded"
    r"|rate limit (?:reached|exceeded)|upstream (?:connect|request) )",
    re.IGNORECASE,
)
_SHORT = 400
_ERROR_KEY = lazily(
    r'\s*\{\s*"(?:error|errors|exception|error_message|errorMessage)"\s*:(?!\s*(?:null\b|false\b|""|\[\s*\]|\{\s*\}))'
)
_ERROR_PAGE = lazily(
    r"<(?:title|h1)[^>]{0,80}>\s*"
    r"(?:error\b|[45]\d\d\b|[^<]{0,80}(?:error|bad gateway|not found|unavailable|forbidden))",
    re.IGNORECASE,
)
_PAGE_START = ("<!doctype html", "<html", "<head", "<?xml")


class ResponseHealth(CriterionEvaluator, type="ResponseHealth"):
    """Scores true for a complete and genuine answer, and false, with the reason, for any other.

    Reasons, the first that applies: ``handler_error`` (raised, and no text), ``unfinished_stream``,
    ``empty``, ``error_text``, ``refusal``, ``truncated``. Two more are healthy: ``needs_input``
    asks for what is missing, ``policy_denial`` denies by a rule of the operator's or hands over.
    Looks at the head and the tail of the text. An answer that is no text, such as a mapping, is
    healthy unless it is empty or an error object. Language-dependent signs are English.
    """

    evaluates_errors: ClassVar[bool] = True

    criterion_name: str = "response_health"
    scale: str = "binary"

    def preferred_execution(self) -> Execution | None:
        return "inline"

    def score(self, evaluation_input: EvaluationInput) -> Score:
        return _SCORES[_reason_of(evaluation_input)]


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
    outcome = outcome_of(head)
    if outcome == "refusal":
        return outcome
    if finish in _CUT_OFF or _breaks_off(text):
        return "truncated"
    return outcome


def _content_of(response: object) -> str:
    content = (
        response.get("content")
        if isinstance(response, Mapping)
        else getattr(response, "content", None)
    )
    return content if isinstance(content, str) else ""


def _reason_of_structure(response: object) -> str | None:
    if response is None or isinstance(response, str):
        return "empty"
    if hasattr(response, "__len__") and len(response) == 0:
        return "empty"
    if not isinstance(response, Mapping):
        return None
    if isinstance(response.get("role"), str) and not response.get("contentParts"):
        calls_tools = response.get("toolCalls") or response.get("tool_calls")
        return None if calls_tools else "empty"
    first_key = next(iter(response))
    if first_key in ("error", "errors") and next(iter(response.values())):
        return "error_text"
    return None


def _is_error_text(head: str, length: int) -> bool:
    if head.startswith("{"):
        return _ERROR_KEY.match(head) is not None
    if head.startswith("<"):
        return head[:16].lower().startswith(_PAGE_START) and _ERROR_PAGE.search(head) is not None
    if _ERROR_START.match(head):
        # A word and a colon may open an explanation; messages of a program that stand alone are
        # short.
        return length <= _SHORT or head.startswith(("Traceback", "Exception in thread", "panic: "))
    return length <= _SHORT and _ERROR_SENTENCE.match(head) is not None


def _breaks_off(text: str) -> bool:
    if "`" in text and text.count("```") % 2 and len(_FENCE.findall(text)) % 2:
        return True
    if len(text) < _LONG_ENOUGH_TO_BREAK_OFF:
        return False
    tail = text[-_TAIL:].rstrip()
    if _OPEN.search(tail[-_LONG_LINE:]):
        return True
    if not (tail[-1].isascii() and (tail[-1].isalnum() or tail[-1] in ",;:([{-")):
        return False  # a full stop, a quote, an emoji, another script
    *before, line = tail.splitlines()
    # A short last line may be a greeting ("Best regards,") or a heading.
    if len(line) >= _LONG_LINE and _BROKEN_OFF.search(line[-16:]) is not None:
        return True
    if _NO_PROSE.search(line) is not None:
        return False
    return _lacks_its_end(line, [entry.strip() for entry in before if entry.strip()])


def _lacks_its_end(line: str, before: list[str]) -> bool:
    """Tell whether the last line stops in a sentence, while the lines before it end theirs."""
    if _ITEM.match(line) or _BARE_NUMBER.fullmatch(line):
        items = [entry for entry in before if _ITEM.match(entry) and len(entry) >= _LONG_LINE]
        is_long = len(line) >= _SHORT_ITEM or len(items) > 1
        return is_long and _ended(items) > 0.8 * max(1, len(items))
    sentences = _SENTENCE_END.split(line)
    rest = sentences[-1].split()
    lower_case = sum(word[0].islower() for word in rest)
    if _CLOSING.match(sentences[-1]) or lower_case * 2 < len(rest):
        return False  # a greeting, a name, a title
    if len(sentences) > 1:
        return True
    return len(rest) >= _ENOUGH_WORDS and _has_full_stops(before)


def _has_full_stops(before: list[str]) -> bool:
    """Tell whether the line before the last ends its sentence.

    If that line is an item, the paragraph before the list may end its sentence instead.
    """
    if _ended(before[-1:]):
        return True
    prose = [entry for entry in before if len(entry) >= _LONG_LINE and not _ITEM.match(entry)]
    return bool(prose) and _ITEM.match(before[-1]) is not None and prose[-1][-1] in ".!?:"


def _ended(lines: list[str]) -> int:
    return sum(line[-1] in ".!?" for line in lines)
