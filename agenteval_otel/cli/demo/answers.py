"""What the demo's users ask and its agent answers."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["FOLLOW_UPS", "MOODS", "SHARES_V1", "SHARES_V2", "SYSTEM", "TOPICS", "Topic", "answer_text"]

SYSTEM = "You are the support agent of a small shop. Be brief, name what was asked about, say what happens next."


class Topic(NamedTuple):
    """Something people ask about, the tool that knows it and what it knows."""

    word: str
    question: str
    tool: str
    fact: str


TOPICS = (
    Topic("refund", "Where is my refund for order {order}?", "lookup_order",
          "it was approved on Monday and takes three working days to reach your account"),
    Topic("delivery", "When will the delivery of order {order} arrive?", "track_delivery",
          "the parcel left the depot this morning and arrives tomorrow before noon"),
    Topic("invoice", "The invoice of order {order} has the wrong address, can you fix it?", "lookup_order",
          "it still shows your old address, and a corrected copy is on its way to your inbox"),
    Topic("password", "My password does not work any more, what can I do?", "search_help",
          "it expired after ninety days, and the sign-in page sends you a fresh link"),
    Topic("warranty", "Does the warranty cover a broken hinge on order {order}?", "search_help",
          "hinges are covered for two years and yours is eight months old"),
    Topic("subscription", "How do I pause my subscription?", "search_help",
          "you can pause it for up to three months, and nothing is charged meanwhile"),
)  # fmt: skip

FOLLOW_UPS = (
    "Thanks. And what does that mean for my {topic}?",
    "Is there anything that I have to do about the {topic} myself?",
    "How long will that take, for the {topic} I mean?",
)

# What an answer may turn out to be, and how often under either prompt (in percent). Version 2 fails and breaks off no
# more often than version 1: what latency and error rate show stays the same, and the answers get worse.
MOODS = ("good", "vague", "long", "open_ended", "refused", "empty", "cut", "failed")
SHARES_V1 = (84, 2, 3, 2, 2, 2, 2, 3)
SHARES_V2 = (29, 20, 22, 13, 9, 2, 2, 3)

_GREETINGS = ("Thanks for waiting.", "Thank you for asking.", "Of course, thanks for writing.", "Happy to look.")
_NEXT = (
    "Reply here if anything is missing.",
    "I opened a ticket and will reply in it by tomorrow.",
    "Please reply with a photo if it looks different on your side.",
)
_PADDING = (
    " There are several cases to tell apart, which our general terms explain in some detail, and in most of them the"
    " answer depends on when and how things were ordered, on what was agreed, and on who looks at it first."
)


def answer_text(mood: str, topic: Topic, choice: int) -> str:
    """The answer's text; `choice` picks among the ways of saying it."""
    greeting, following = _GREETINGS[choice % len(_GREETINGS)], _NEXT[choice % len(_NEXT)]
    if mood == "empty":
        return ""
    if mood == "refused":
        return f"I'm sorry, but I can't help with that request. {greeting}"
    if mood == "vague":
        return f"{greeting} We are aware of things like this and will look at it as soon as we can."
    about = f"{greeting} About your {topic.word}: {topic.fact}."
    if mood == "long":
        return f"{greeting}{_PADDING}{_PADDING} As to your {topic.word}, {topic.fact}. {following}"
    if mood == "open_ended":
        return about
    if mood == "cut":
        return f"{about}{_PADDING} We will also look at the"
    return f"{about} {following}"
