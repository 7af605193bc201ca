"""Reading: an answer as it is put together, from one whole object or from the pieces of a stream.

An agent may ask its model several times for one answer. Each of the model's responses is a turn here; the answer's text
is that of the last turn that says or calls something, the same whether the agent was streamed or not. Tool calls,
results and usage are those of all turns. Text that the handler passed on as plain strings belongs to no turn and stays.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from agenteval_otel.capture.fields import Tokens, add_tokens
from agenteval_otel.capture.messages import Result, Turn
from agenteval_otel.capture.text import clean
from agenteval_otel.capture.tool_calls import Call, Calls

__all__ = ["FormatReader", "OpenTurn", "Reading"]


@dataclass(slots=True, eq=False)
class OpenTurn:
    """One of the model's responses, as far as it came."""

    number: int
    key: str | None = None
    has_output: bool = False
    usage: Tokens | None = None
    model: str | None = None
    response_id: str | None = None
    finish_reason: str | None = None


class Reading:
    """What is known of an answer so far; formats add to it.

    Attributes:
        calls: Its tool calls.
        history: The messages that came before the answer, where the answer brought its whole conversation.
        usage_total: The usage of the whole run, where the run itself reports it.
        depth: How deep the value that is being read lies in others.
    """

    def __init__(self) -> None:
        self.calls = Calls()
        self.history: list[Turn] = []
        self.usage_total: Tokens | None = None
        self.conversation_id: str | None = None
        self._turns: list[OpenTurn] = []
        self._segments: list[tuple[OpenTurn | None, str]] = []
        self._echoes: list[str] = []
        self.depth = 0

    @property
    def empty(self) -> bool:
        """Whether there is neither text nor a tool call."""
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
            total = add_tokens(total, turn.usage)
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

    def add_text(self, text: str) -> None:
        """Add text that the handler passed on as it is; it belongs to no turn and stays."""
        if text:
            self._segments.append((None, text))

    def echo(self, text: Any) -> None:
        """Text of a stream helper's event, which repeats the provider's: it counts only where nothing else came."""
        if isinstance(text, str):
            self._echoes.append(text)

    def use_echoes(self) -> None:
        """Use the echoes as the answer where there is nothing else."""
        for text in self._echoes if self.empty else ():
            self.extend(self.open_turn(), text)

    def begin_turn(self, key: str | None = None) -> OpenTurn:
        """Begin a turn; returns the last one where that has no output yet."""
        if not self._turns or self._turns[-1].has_output:
            self._turns.append(OpenTurn(len(self._turns)))
        self._turns[-1].key = key or self._turns[-1].key
        return self._turns[-1]

    def open_turn(self, key: str | None = None) -> OpenTurn:
        """The turn with this key, begun where there is none; without a key the last one."""
        if self._turns and (key is None or self._turns[-1].key in (key, None)):
            self._turns[-1].key = key or self._turns[-1].key
            return self._turns[-1]
        known = next((turn for turn in reversed(self._turns[-64:]) if turn.key == key), None)
        return known if known is not None else self.begin_turn(key)

    def extend(self, turn: OpenTurn, text: Any) -> None:
        """Append a piece of a turn's text."""
        if isinstance(text, str) and text:
            turn.has_output = True
            self._segments.append((turn, text))

    def extend_call(
        self, turn: OpenTurn, index: Any, *, id: str | None = None, name: str | None = None, piece: Any
    ) -> None:
        """Append a piece of a tool call's arguments; the first one names the call."""
        turn.has_output = True
        self.calls.extend((turn.number, index), id=id, name=name, piece=piece)

    def add_call(self, turn: OpenTurn, call: Call, index: Any = None) -> None:
        """Add a whole tool call to a turn."""
        turn.has_output = True
        self.calls.add(call, None if index is None else (turn.number, index))

    def add_turn(self, message: Turn) -> OpenTurn:
        """Add a turn as a whole: at once, or again after its pieces."""
        turn = self._open_of(message)
        if message.text is not None and message.text != self.text and message.text != self._text_of(turn):
            self._segments = [segment for segment in self._segments if segment[0] is not turn]
            self.extend(turn, message.text)
        turn.has_output = turn.has_output or bool(message.text)
        for index, call in enumerate(message.calls):
            self.add_call(turn, call, None if call.id else ("whole", index))
        self.add_results(message.results)
        self.update(turn, message)
        return turn

    def update(self, turn: OpenTurn, message: Turn) -> None:
        """Set what is known of a turn besides its text."""
        self._use(turn, message.usage)
        turn.model = message.model or turn.model
        turn.response_id = message.response_id or turn.response_id
        turn.finish_reason = message.finish_reason or turn.finish_reason
        self.conversation_id = message.conversation_id or self.conversation_id

    def _use(self, turn: OpenTurn, tokens: Tokens | None) -> None:
        """Set the turn's usage; a later number replaces an earlier one."""
        if tokens is not None:
            before = turn.usage or (None, None)
            turn.usage = (
                before[0] if tokens[0] is None else tokens[0],
                before[1] if tokens[1] is None else tokens[1],
            )

    def add_results(self, results: list[Result]) -> None:
        """Set results of tools on the calls with their ids."""
        for id, result in results:
            self.calls.set_result(id, result)

    def add_conversation(self, turns: list[Turn]) -> None:
        """Add a whole conversation: what follows the user's last message is the answer."""
        last_user = max((index for index, turn in enumerate(turns) if turn.role == "user"), default=-1)
        self.history = turns[: last_user + 1]
        for turn in turns[last_user + 1 :]:
            self.add_message(turn)

    def add_message(self, turn: Turn) -> None:
        """Add a message after the user's last one: the model's, or a tool's."""
        if turn.role == "assistant":
            self.add_turn(turn)
        else:
            self.add_results(turn.results)

    def _answering(self) -> OpenTurn | None:
        saying = next((turn for turn in reversed(self._turns) if turn.has_output), None)
        return saying or (self._turns[-1] if self._turns else None)

    def _open_of(self, message: Turn) -> OpenTurn:
        for key in filter(None, (message.key, message.response_id)):
            known = next((turn for turn in reversed(self._turns[-64:]) if key in (turn.key, turn.response_id)), None)
            if known is not None:
                return known
        if self._turns and message.text and message.text in (self.text, self._text_of(self._turns[-1])):
            return self._turns[-1]
        return self.begin_turn(message.key)

    def _text_of(self, turn: OpenTurn) -> str:
        return "".join(text for owner, text in self._segments if owner is turn)


FormatReader = Callable[[Reading, Any], bool]
"""Adds a value to the reading and returns True, or returns False where the value has another form."""
