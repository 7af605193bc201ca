"""Placeholders: what examples, templates and code have in the place of a secret.

Most values after ``password=`` in ordinary answers are placeholders. A value that may be the
password of a person stays a secret: in doubt, it is redacted.
"""

from __future__ import annotations

from typing import Final

from agenteval_otel.runtime.text import lazily

_LONGEST: Final = 128
_SECRET_WORD: Final = (
    r"(?:password|passwort|passwd|passphrase|passcode|pwd|secret|token|credentials?)"
)
_PLACEHOLDER: Final = lazily(
    r"(?i)(?:"
    # nothing, and types
    r"none|null|nil|true|false|undefined|required|optional|str|string|bytes|int|integer|number|boolean|object|any|text"
    r"|varchar\S*|empty|yes|no|on|off|test|missing|invalid|expired|redacted|hidden|masked|change-?_?me|placeholder|todo|tbd|n/a"
    # covered or cut
    r"|[*\u2022\u25cf.\u2026_#-]+|x{3,}|(?:[a-z]{2,8}[-_]){0,3}\w{0,4}(?:\.{2,}|\u2026|\*{3,}|\u2022{3,}|x{6,})[\w-]{0,8}"
    # templates of shells and of frameworks, and the markers of redaction
    r"|[$#@%]?\{.*\}?|\$\(.*|\$(?-i:[A-Z][A-Z0-9_]*|[a-z_]+(?:(?:->|::?|\.)\S*)?)|\$[0-9]|(?:%[sdvqr]\W?)+|[^\w\s]{1,3}|%\([a-z_]+\)[sdr]|%[a-z_]+%"
    r"|<.*>?|\[[a-z_ -]+\]?|:[a-z_]+|\?+"
    # words
    rf"|(?:my|our|the|some|any|an?|use|example|sample|dummy|fake|test|new|old|actual|real)[-_]?[a-z_-]*(?:{_SECRET_WORD}|[-_]key)"
    r"[a-z_-]*[0-9]?|(?:your|insert|enter|replace|put|paste)(?:[-_ ][a-z_ -]*[0-9]?|[a-z]*)|[a-z_ -]*[-_ ]here"
    r"|(?-i:[A-Z]+(?:_[A-Z]+)+(?:_?[0-9])?)"
    r")\Z"
)
_NAME: Final = lazily(
    rf"(?i)(?:[a-z_-]*{_SECRET_WORD}(?:[-_][a-z_-]*)?|(?:[a-z_-]*[-_])?(?:api)?key)\Z"
    rf"|[a-z]+(?:[A-Z][a-z]+)*(?:Password|Secret|Token|Key|Credentials?)\Z"
)
_CALL: Final = lazily(r"[A-Za-z_$][\w$]*(?:(?:\.|::|->)[A-Za-z_$][\w$]*)*!?\Z")
_MEMBER: Final = lazily(r"[$A-Za-z_][$A-Za-z_]*(?:(?:\.|::|->)[$A-Za-z_][$A-Za-z_]*)+\Z")
_SETTING: Final = lazily(
    r"(?i)(?:os|process|env|environ|config|configuration|settings|self|this|args|request|req|params|props|options|opts|secrets|vault"
    r"|vars|ctx|context|user|app|data|state)\..*\Z"
)
_VARIABLE: Final = lazily(r"[a-z]+(?:_[a-z]+)+\Z|[a-z]+(?:[A-Z][a-z]+)+\Z|_+[a-z_]+\Z")
_IDENTIFIER: Final = lazily(r"[A-Za-z_$][A-Za-z_$-]{0,14}\Z|[a-z]+(?:[_-][a-z]+)+\Z")
_ONE_WORD: Final = lazily(r" ?[^\W\d_]{1,15}[.!?:,]?\Z")
_FUNCTION_WORD: Final = lazily(
    r"(?i)(?:a|an|the|your|my|our|their|this|that|these|it|its|is|are|was|be|must|should|can|could|may|will|would|at|in|on|of|for|to"
    r"|from|with|by|and|or|if|when|not|no|use|choose|enter|create|make|type|click|select|set|reset|change|update|ensure|keep|never"
    r"|expected|got|given|found|always|avoid|do|don|please|forgot|strong|weak|minimum|maximum|between|same|see)\Z"
)
_INVENTED: Final = lazily(
    r"(?:ant-(?:api|admin|oat|sid)[0-9]{2}-|proj-|svcacct-|admin-|or-v1-|lf-|live_|test_|prod_|pat_)?"
    r"(?:(?=.*[xX]{6})|(?!.*[0-9])(?=.*(?:your|Your|YOUR|here\Z|Here\Z|HERE\Z|[Ee]xample|EXAMPLE|[Pp]laceholder|[Ii]nsert|[Rr]eplace))"
    r"|[a-z]+(?:[-_.][a-z]+)+\Z|[A-Z]+(?:[-_.][A-Z]+)+\Z)"
)


def is_placeholder(value: str) -> bool:
    """Tell whether it stands for a secret anywhere: ``YOUR_API_KEY``, ``${TOKEN}``, ``...``."""
    return len(value) <= _LONGEST and _PLACEHOLDER.match(value) is not None


def is_invented(body: str) -> bool:
    """Tell whether a vendor's prefix is followed by words or is crossed out: ``sk-your-key-here``."""
    return len(body) <= _LONGEST and _INVENTED.match(body) is not None


def is_name(value: str) -> bool:
    """Tell whether a text in quotes is only a secret's name: ``"api_key"``, ``"userPassword"``."""
    return len(value) <= _LONGEST and _NAME.match(value) is not None


def is_expression(word: str, after: str, *, assigned: bool) -> bool:
    """Tell whether a word without quotes is code: a call, a member or a setting.

    After an assignment in spaces, or inside of brackets, it may be the name of a variable too.
    """
    if len(word) > _LONGEST:
        return False
    if after and after in "([" and _CALL.match(word):
        return True
    if _MEMBER.match(word) or _SETTING.match(word):
        return True
    may_be_variable = assigned or (after != "" and after in ",)}")
    if not may_be_variable:
        return False
    return _VARIABLE.match(word) is not None or _NAME.match(word) is not None


def is_identifier(word: str) -> bool:
    """Tell whether it is a short word of letters or a name in code, which no key is."""
    return len(word) <= _LONGEST and _IDENTIFIER.match(word) is not None


def is_one_word(value: str) -> bool:
    """Tell whether it is a single word of prose."""
    return _ONE_WORD.match(value) is not None


def begins_sentence(word: str, rest: str) -> bool:
    """Tell whether a sentence begins here, as in ``Password: Use a strong one``."""
    if _FUNCTION_WORD.match(word):
        return True
    if is_name(word) and rest[:1] == " " and rest[1:2].islower():
        return True
    is_capitalized = word[:1].isupper() and word[1:].islower() and word.isalpha()
    return is_capitalized and rest[:1] == " " and rest[1:2].islower()
