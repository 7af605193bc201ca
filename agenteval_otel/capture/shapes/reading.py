"""Reading: an answer as it is put together, from one whole object or from the pieces of a stream.

An agent may ask its model several times for one answer. Each of the model's responses is a turn here; the answer's text
is that of the last turn that says or calls something, the same whether the agent was streamed or not. Tool calls,
results and usage are those of all turns. Text that the handler passed on as plain strings belongs to no turn and stays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from agenteval_otel.capture.shapes.calls import Call, Calls
from agenteval_otel.capture.shapes.content import Result
from agenteval_otel.capture.shapes.turns import Turn
from agenteval_otel.capture.shapes.usage import Tokens, add
from agenteval_otel.capture.text import clean

__all__ = ["OpenTurn", "Reading"]


@dataclass(slots=True, eq=False)
class OpenTurn:
    """One of the model's responses, as far as it came."""

    number: int
    key: str | None = None
    says: bool = False
    usage: Tokens | None = None
    model: str | None = None
    response_id: str | None = None
    finish_reason: str | None = None


class Reading:
    """What is known of an answer so far.

    Attributes:
        calls: Its tool calls.
        asked: The messages that came before the answer, where the answer brought its whole conversation.
        usage_total: The usage of the whole run, where the run itself tells it.
    """

    def __init__(self) -> None:
        self.calls = Calls()
        self.asked: list[Turn] = []
        self.usage_total: Tokens | None = None
        self.conversation_id: str | None = None
        self._turns: list[OpenTurn] = []
        self._segments: list[tuple[OpenTurn | None, str]] = []

    @property
    def empty(self) -> bool:
        """Nothing was said or called, by a model or by the handler."""
        return not self._segments and not self._turns and not self.calls

    @property
    def text(self) -> str:
        """The answer's text, capped and clean."""
        last = self._answering()
        return clean("".join(text for owner, text in self._segments if owner is None or owner is last))

    @property
    def usage(self) -> Tokens | None:
        """Tokens of all turns."""
        total = self.usage_total
        for turn in self._turns if total is None else ():
            total = add(total, turn.usage)
        return total

    @property
    def model(self) -> str | None:
        """The model that answered last."""
        return next((turn.model for turn in reversed(self._turns) if turn.model), None)

    @property
    def response_id(self) -> str | None:
        """The id of the last turn."""
        last = self._answering()
        return last.response_id if last else None

    @property
    def finish_reason(self) -> str | None:
        """Why the last turn ended; None where it did not."""
        last = self._answering()
        return last.finish_reason if last else None

    def say(self, text: str) -> None:
        """Text that the handler passed on as it is."""
        if text:
            self._segments.append((None, text))

    def begin(self, key: str | None = None) -> OpenTurn:
        """A new turn; the last one again where it has said nothing yet."""
        if not self._turns or self._turns[-1].says:
            self._turns.append(OpenTurn(len(self._turns)))
        self._turns[-1].key = key or self._turns[-1].key
        return self._turns[-1]

    def turn(self, key: str | None = None) -> OpenTurn:
        """The turn of this key, begun where there is none; without a key the last one."""
        if self._turns and (key is None or self._turns[-1].key in (key, None)):
            self._turns[-1].key = key or self._turns[-1].key
            return self._turns[-1]
        known = next((turn for turn in reversed(self._turns[-64:]) if turn.key == key), None)
        return known if known is not None else self.begin(key)

    def grow(self, turn: OpenTurn, text: Any) -> None:
        """The next piece of a turn's text."""
        if isinstance(text, str) and text:
            turn.says = True
            self._segments.append((turn, text))

    def grow_call(
        self, turn: OpenTurn, index: Any, *, id: str | None = None, name: str | None = None, piece: Any
    ) -> None:
        """The next piece of one of a turn's tool calls."""
        turn.says = True
        self.calls.grow((turn.number, index), id=id, name=name, piece=piece)

    def add_call(self, turn: OpenTurn, call: Call, index: Any = None) -> None:
        """A whole tool call of a turn."""
        turn.says = True
        self.calls.add(call, None if index is None else (turn.number, index))

    def whole(self, told: Turn) -> OpenTurn:
        """A turn that is told as a whole: in one piece, or once more after its pieces."""
        turn = self._open_of(told)
        if told.text is not None and told.text != self.text and told.text != self._text_of(turn):
            self._segments = [segment for segment in self._segments if segment[0] is not turn]
            self.grow(turn, told.text)
        turn.says = turn.says or bool(told.text)
        for index, call in enumerate(told.calls):
            self.add_call(turn, call, None if call.id else ("whole", index))
        self.results(told.results)
        self.tell(turn, told)
        return turn

    def tell(self, turn: OpenTurn, told: Turn) -> None:
        """What is known of a turn besides its text."""
        self.use(turn, told.usage)
        turn.model = told.model or turn.model
        turn.response_id = told.response_id or turn.response_id
        turn.finish_reason = told.finish_reason or turn.finish_reason
        self.conversation_id = told.conversation_id or self.conversation_id

    def use(self, turn: OpenTurn, tokens: Tokens | None) -> None:
        """The turn's usage; a number that is told again takes the earlier one's place."""
        if tokens is not None:
            before = turn.usage or (None, None)
            turn.usage = (
                before[0] if tokens[0] is None else tokens[0],
                before[1] if tokens[1] is None else tokens[1],
            )

    def results(self, results: list[Result]) -> None:
        """What tools gave, for the calls with their ids."""
        for id, result in results:
            self.calls.answer(id, result)

    def conversation(self, turns: list[Turn]) -> None:
        """The messages of a conversation in its present state: what follows the user's last message is the answer."""
        last_user = max((index for index, turn in enumerate(turns) if turn.role == "user"), default=-1)
        self.asked = turns[: last_user + 1]
        for turn in turns[last_user + 1 :]:
            self.follow(turn)

    def follow(self, turn: Turn) -> None:
        """One more message after the user's last: the model's, or a tool's."""
        if turn.role == "assistant":
            self.whole(turn)
        else:
            self.results(turn.results)

    def _answering(self) -> OpenTurn | None:
        saying = next((turn for turn in reversed(self._turns) if turn.says), None)
        return saying or (self._turns[-1] if self._turns else None)

    def _open_of(self, told: Turn) -> OpenTurn:
        for key in filter(None, (told.key, told.response_id)):
            known = next((turn for turn in reversed(self._turns[-64:]) if key in (turn.key, turn.response_id)), None)
            if known is not None:
                return known
        if self._turns and told.text and (told.text == self.text or told.text == self._text_of(self._turns[-1])):
            return self._turns[-1]
        return self.begin(told.key)

    def _text_of(self, turn: OpenTurn) -> str:
        return "".join(text for owner, text in self._segments if owner is turn)
