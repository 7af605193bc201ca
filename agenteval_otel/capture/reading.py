"""Reading: an answer as it is put together, from one whole object or from the pieces of a stream.

Each response of a model is a turn. The answer's text is that of the last turn with output. Tool
calls, results and usage are those of all turns. Text that the handler passed on as plain strings
belongs to no turn and stays.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import partial
from typing import Any, Final

from agenteval_otel.capture.detached import Detached, read_also
from agenteval_otel.capture.fields import MAX_ITEMS, Tokens, add_tokens, json_object
from agenteval_otel.capture.messages import Call, Result, Turn, all_turns, turns_of
from agenteval_otel.capture.text import PlainCopy, clean, own_json, to_text

_MAX_KNOWN: Final = 64  # turns among which the one with a key is looked for


class Calls:
    """Holds the tool calls of one answer.

    A call is known by its id. A piece without an id is known by its place: turn and index. Calls
    beyond the first 1,000 are not kept.
    """

    def __init__(self) -> None:
        self._all: list[Call] = []
        self._by_id: dict[str, Call] = {}
        self._by_place: dict[Hashable, Call] = {}

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Call]:
        return iter(self._all)

    def add(self, call: Call, place: Hashable = None) -> None:
        """Add a whole call. A call that is known already by its id or its place is completed by it."""
        known = self._by_id.get(call.id) if call.id else None
        if known is None:
            known = self._by_place.get(place)
        if known is None:
            self._begin(call, place)
            return
        known.name = call.name or known.name
        known.result = known.result if call.result is None else call.result
        known.error = call.error or known.error
        if call.arguments is not None or call.pieces:
            known.arguments = call.arguments
            known.pieces = call.pieces

    def extend(
        self,
        place: Hashable,
        *,
        id: str | None = None,
        name: str | None = None,
        piece: object = None,
    ) -> None:
        """Append a piece of a call's arguments. The first piece names the call."""
        call = self._by_id.get(id) if id else self._by_place.get(place)
        if call is None:
            call = self._begin(Call(id, name or ""), place)
        self._by_place[place] = call
        call.name = call.name or name or ""
        if isinstance(piece, str):
            call.pieces.append(piece)
        elif piece is not None:
            call.arguments = piece

    def set_results(self, results: list[Result]) -> None:
        """Put results into the calls with their ids. A result without a known id is left out."""
        for result in results:
            call = self._by_id.get(result.id) if result.id else None
            if call is not None:
                call.result = result.value
                call.error = result.error

    def finished(self) -> list[dict[str, Any]] | None:
        """Return the calls as fields of `ToolCall`, plain and bounded all together.

        Return None if there is none.
        """
        return plain_calls(self._all, PlainCopy())

    def _begin(self, call: Call, place: Hashable) -> Call:
        """Keep a new call if there is room, and return it in any case."""
        if len(self._all) < MAX_ITEMS:
            self._all.append(call)
            if call.id:
                self._by_id[call.id] = call
            if place is not None:
                self._by_place[place] = call
        return call


def plain_calls(calls: list[Call], copy: PlainCopy) -> list[dict[str, Any]] | None:
    """Return calls as fields of `ToolCall`. Return None if no call has a name."""
    if not calls:
        return None
    plain = []
    for call in calls:
        if not call.name:
            continue
        arguments = "".join(call.pieces) if call.pieces else call.arguments
        fields: dict[str, Any] = {"id": call.id, "name": clean(call.name, 256)}
        fields["arguments"] = copy.take(_data_of(arguments))
        fields["result"] = copy.take(_data_of(call.result))
        if call.error is not None:
            fields["error"] = clean(call.error)
        if call.duration_s is not None:
            fields["duration_s"] = call.duration_s
        plain.append(fields)
    return plain or None


def _data_of(value: object) -> Any:
    """Return the data that a text is the JSON of, and every other value as it is."""
    read = json_object(value)
    return value if read is None else read


class Reading:
    """Holds what is known of an answer so far. Formats add to it.

    Attributes:
        read_history: Reads the messages that came before the answer, where the answer brought its
            whole conversation.
        usage_total: The usage of the whole run, where the run itself reports it.
        handler: The function that gave the answer, where that is known.
        is_json: The text is the JSON of the handler's own data.
        has_unread_parts: A message has parts that were not read, or no field for its content.
        depth: How deep the value that is being read lies in others.
    """

    def __init__(self, handler: Callable[..., Any] | None = None) -> None:
        self.handler = handler
        self.is_json = False
        self.has_unread_parts = False
        self.calls = Calls()
        self.read_history: Callable[[], list[Turn]] | None = None
        self.usage_total: Tokens | None = None
        self.conversation_id: str | None = None
        self.depth = 0
        self._turns: list[Turn] = []
        # Pieces of text in the order in which they came, each with its turn. None: with no turn.
        self._segments: list[tuple[Turn | None, str]] = []
        self._echoes: list[str] = []

    @property
    def empty(self) -> bool:
        """Tell whether there is neither text nor a turn nor a tool call."""
        return not (self._segments or self._turns or self.calls or self._echoes)

    @property
    def text(self) -> str:
        """Return the answer's text, capped and clean."""
        last = self.last
        texts = [text for owner, text in self._segments if owner is None or owner is last]
        if not self._segments:
            texts = self._echoes
        return clean("".join(texts))

    @property
    def usage(self) -> Tokens | None:
        """Return the tokens of all turns, or those that were reported for the whole."""
        if self.usage_total is not None:
            return self.usage_total
        total: Tokens | None = None
        for turn in self._turns:
            total = add_tokens(total, turn.usage)
        return total

    @property
    def model(self) -> str | None:
        """Return the model that answered last."""
        return next((turn.model for turn in reversed(self._turns) if turn.model), None)

    @property
    def last(self) -> Turn:
        """Return the last turn with output, else the last one.

        Return an empty turn if there is none.
        """
        if not self._turns:
            return Turn("assistant")
        with_output = (turn for turn in reversed(self._turns) if turn.has_output)
        return next(with_output, self._turns[-1])

    def add_text(self, text: str) -> None:
        """Add text that the handler passed on as it is. It belongs to no turn and stays."""
        if text:
            self._segments.append((None, text))

    def echo(self, text: object) -> None:
        """Add text of a stream helper's event, which repeats the provider's.

        It counts only if nothing else came.
        """
        if isinstance(text, str):
            self._echoes.append(text)

    def begin_turn(self, key: str | None = None) -> Turn:
        """Begin a turn. Return the last one instead if it has no output yet."""
        if not self._turns or self._turns[-1].has_output:
            self._turns.append(Turn("assistant", number=len(self._turns)))
        turn = self._turns[-1]
        turn.key = key or turn.key
        return turn

    def open_turn(self, key: str | None = None) -> Turn:
        """Return the turn with this key, and begin it if there is none.

        Without a key, return the last one. A last turn without a key gets this one.
        """
        last = self._turns[-1] if self._turns else None
        if last is not None and (key is None or last.key is None or last.key == key):
            last.key = key or last.key
            return last
        return self._known(key) or self.begin_turn(key)

    def extend(self, turn: Turn, text: object) -> None:
        """Append a piece of a turn's text."""
        if isinstance(text, str) and text:
            turn.has_output = True
            self._segments.append((turn, text))

    def extend_call(
        self,
        turn: Turn,
        index: Hashable,
        *,
        id: str | None = None,
        name: str | None = None,
        piece: object,
    ) -> None:
        """Append a piece of a tool call's arguments. The first piece names the call."""
        turn.has_output = True
        self.calls.extend((turn.number, index), id=id, name=name, piece=piece)

    def add_call(self, turn: Turn, call: Call, index: Hashable = None) -> None:
        turn.has_output = True
        self.calls.add(call, None if index is None else (turn.number, index))

    def update(
        self,
        turn: Turn,
        *,
        usage: Tokens | None = None,
        model: str | None = None,
        response_id: str | None = None,
        finish_reason: str | None = None,
    ) -> None:
        """Set what is known of a turn besides its text.

        A later number of tokens replaces an earlier one.
        """
        if usage is not None:
            earlier_in, earlier_out = turn.usage or (None, None)
            tokens_in, tokens_out = usage
            turn.usage = (
                earlier_in if tokens_in is None else tokens_in,
                earlier_out if tokens_out is None else tokens_out,
            )
        turn.model = model or turn.model
        turn.response_id = response_id or turn.response_id
        turn.finish_reason = finish_reason or turn.finish_reason

    def add_turn(self, message: Turn) -> Turn:
        """Add a turn as a whole: at once, or again after its pieces."""
        if message.data is not None:
            message.text = self.data_text(message.data)
        turn = self._turn_of(message)
        self.has_unread_parts = self.has_unread_parts or message.has_unread_parts
        # The whole replaces the pieces, unless it says the same as they do.
        if message.text not in (None, self.text, self._text_of(turn)):
            self._segments = [segment for segment in self._segments if segment[0] is not turn]
            self.extend(turn, message.text)
        for index, call in enumerate(message.calls):
            self.add_call(turn, call, None if call.id else ("whole", index))
        self.calls.set_results(message.results)
        turn.has_output = turn.has_output or bool(message.text)
        self.update(
            turn,
            usage=message.usage,
            model=message.model,
            response_id=message.response_id,
            finish_reason=message.finish_reason,
        )
        self.conversation_id = message.conversation_id or self.conversation_id
        return turn

    def data_text(self, value: object) -> str:
        """Return the text of a value: text itself, or the JSON of the handler's own data.

        Raises:
            CaptureError: It is an object of another library.
        """
        if not isinstance(value, dict | list | tuple | Detached):
            return to_text(value)
        self.is_json = True
        return own_json(value, self.handler)

    def add_conversation(self, turns: list[Turn]) -> None:
        """Add a whole conversation: what follows the user's last message is the answer."""
        history = _up_to_question(turns)
        self.read_history = partial(list, history) if history else None
        for turn in turns[len(history) :]:
            self.add_message(turn)

    def add_messages(self, messages: list[Any]) -> None:
        """Add a whole conversation of messages, and read those of the answer alone.

        Those before are read when something looks at the history.
        """
        turns: deque[Turn] = deque()
        for message in reversed(messages):
            own_turns = turns_of(message)
            turns.extendleft(reversed(own_turns))
            if any(turn.role == "user" for turn in own_turns):
                break
        self.add_conversation(list(turns))
        if self.read_history is not None:
            self.read_history = partial(_history_in, messages)

    def add_message(self, turn: Turn) -> None:
        """Add a message after the user's last one: the model's, or a tool's."""
        if turn.role == "assistant":
            self.add_turn(turn)
        else:
            self.calls.set_results(turn.results)

    def _turn_of(self, message: Turn) -> Turn:
        known = self._known(message.key) or self._known(message.response_id)
        if known is not None:
            return known
        if self._turns and message.text:
            last = self._turns[-1]
            if message.text in (self.text, self._text_of(last)):
                return last
        return self.begin_turn(message.key)

    def _known(self, key: str | None) -> Turn | None:
        if not key:
            return None
        turns = reversed(self._turns[-_MAX_KNOWN:])
        return next((turn for turn in turns if key in (turn.key, turn.response_id)), None)

    def _text_of(self, turn: Turn) -> str:
        return "".join(text for owner, text in self._segments if owner is turn)


def _history_in(messages: list[Any]) -> list[Turn]:
    return _up_to_question(all_turns(messages))


def _up_to_question(turns: list[Turn]) -> list[Turn]:
    """Return the turns up to the user's last one."""
    questions = (index for index, turn in enumerate(turns) if turn.role == "user")
    return turns[: max(questions, default=-1) + 1]


FormatReader = Callable[[Reading, Any], bool]
ANSWER_FORMATS: Final[dict[str, FormatReader]] = {}
CHUNK_FORMATS: Final[dict[str, FormatReader]] = {}


def response_format(
    name: str,
    *,
    stream: bool = False,
    fields: Iterable[str] = (),
    libraries: Iterable[str] = (),
    running: Iterable[str] = (),
) -> Callable[[FormatReader], FormatReader]:
    """Register a function ``(reading, value) -> bool`` that reads the answers of a client library.

    The function gets detached values (`Detached`, dictionaries, lists, atoms) on the background
    thread. It adds what it reads to the `Reading` and returns True, or False if the value has
    another form. What it raises counts as ``capture_failed``. The format registered last is tried
    first.

    Args:
        name: A format registered under the same name replaces it.
        stream: The function reads single chunks of a stream instead of whole answers.
        fields: Further stored fields that are read from objects which are not plain data. They are
            never properties or methods.
        libraries: Root packages whose objects hold more than data (clients, agents): of those, only
            known fields are read, and the rest does not count as left out.
        running: Classes, as ``package.Class``, whose objects are not read at all: an agent that
            stands in each of its events would be walked for each.
    """
    formats = CHUNK_FORMATS if stream else ANSWER_FORMATS

    def register(reader: FormatReader) -> FormatReader:
        earlier = {key: known for key, known in formats.items() if key != name}
        formats.clear()
        formats.update({name: reader} | earlier)
        read_also(fields, libraries, running)
        return reader

    return register
