"""`agenteval-otel replay --from file`: what a Collector's file has, scored again beside the
recorded scores.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agenteval_otel.cli.evaluate.dataset import Dataset
from agenteval_otel.offline.replay.results_file import REPLAY
from tests.cli.conftest import CommandLine
from tests.promises.served import new_trace_id, trace_request

from . import recordings as rec

SETTINGS = """
evaluators:
  - {type: RuleBased, rules: [{criterion: polite, type: includes, keywords: [please], caseSensitive: false}]}
"""


def replay(
    cli: CommandLine, *arguments: Any, code: int = 0, settings: str = SETTINGS
) -> dict[str, Any]:
    """The report of a replay."""
    printed = cli(
        "replay", "--settings", cli.settings(settings), "--report", "json", *arguments, code=code
    )
    report: dict[str, Any] = json.loads(printed) if printed else {}
    return report


def record(cli: CommandLine, spans: Sequence[rec.Json], *requests: rec.Json) -> None:
    """Write the Collector's file: spans, and further requests."""
    cli.file("otlp.jsonl", rec.lines(rec.traces(spans), *requests))


def results(folder: Path, name: str = "replay.jsonl") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


def polite(number: int) -> str:
    return f"Please wait, parcel {number} is on its way."


def test_recorded_and_new_scores_stand_side_by_side(cli: CommandLine) -> None:
    """Of the answers that have both: means, pass rates, what passes and fails now; events say which
    version it was.
    """
    spans = [
        rec.answer_span(0, polite(0)),
        rec.answer_span(1, "Wait."),
        rec.answer_span(2, polite(2)),
    ]
    events = [
        rec.result_event(
            0, "polite", 0.0, "fail", **{"gen_ai.evaluation.evaluator.version": "old"}
        ),
        rec.result_event(
            1, "polite", 0.0, "fail", **{"gen_ai.evaluation.evaluator.version": "old"}
        ),
        rec.result_event(2, "other", 1.0),
    ]
    record(cli, spans, rec.logs(events))
    report = replay(cli, "--from", "file", "otlp.jsonl")
    assert (report["answers"], report["with_recorded_scores"], report["failing"]) == (3, 3, 1)
    [compared] = report["compared"]
    assert (compared["name"], compared["answers"], compared["now_pass"], compared["now_fail"]) == (
        "polite",
        2,
        1,
        0,
    )
    assert (compared["recorded"]["mean"]["mean"], compared["new"]["mean"]["mean"]) == (0.0, 0.5)
    assert compared["recorded"]["pass_rate"]["mean"] == 0.0
    assert compared["recorded"]["evaluators"] == ["recorded old"]
    cli("replay", "--settings", cli.settings(SETTINGS), "otlp.jsonl", "--results", "other.jsonl")
    assert "Recorded and new, of the answers that have both" in cli.out
    [row] = [
        line for line in cli.out.splitlines() if line.startswith("polite") and line.endswith("1")
    ]
    assert row.split() == ["polite", "2", "0.00", "0.50", "0", "%", "50", "%", "1", "0", "1"]


def test_results_say_whose_they_are(cli: CommandLine) -> None:
    """Each links to the original span, is marked as replayed, and holds no content of the input."""
    record(cli, [rec.answer_span(4, polite(4))])
    replay(cli, "otlp.jsonl")
    [line] = results(cli.folder)
    trace_id, span_id = rec.ids(4)
    assert (line["span"]["traceId"], line["span"]["spanId"], line["replayed"]) == (
        trace_id,
        span_id,
        True,
    )
    assert line["responseEndedNs"] == int(rec.answer_span(4, "")["endTimeUnixNano"])
    assert line["endedNs"] > line["responseEndedNs"], "and when it was evaluated"
    assert (line["service"], line["agent"], "inputSnapshot" in line) == ("shop", "support", False)
    assert (cli.folder / "replay.jsonl").stat().st_mode & 0o077 == 0


def test_parts_of_a_trace_come_from_anywhere(cli: CommandLine) -> None:
    """Events in a file of their own, before their spans, children long after, a span twice: one
    answer each.
    """
    agents = [rec.answer_span(number, polite(number)) for number in range(40)]
    runs = [rec.run_span(number, {"gen_ai.evaluation.polite.score": 0.0}) for number in range(40)]
    cli.file(
        "logs.jsonl",
        rec.lines(rec.logs([rec.result_event(n, "polite", 1.0, "pass") for n in range(20)])),
    )
    cli.file(
        "traces.jsonl",
        rec.lines(*(rec.traces([agent]) for agent in [*agents, *agents[:5]]), rec.ours(runs)),
    )
    report = replay(cli, "logs.jsonl", "traces.jsonl")
    assert report["answers"] == 40
    [compared] = report["compared"]
    # where there is an event, it says more
    assert (compared["answers"], compared["differ"]) == (40, 20)
    assert compared["recorded"]["mean"]["mean"] == 0.5


def test_all_events_of_a_span_count_against_the_bound_of_a_trace(cli: CommandLine) -> None:
    """The rest of a trace with more than 10,000 spans and events is left out, and that is counted."""
    events = [rec.result_event(0, "polite", 1.0, "pass")] * 10_000
    record(cli, [rec.answer_span(0, polite(0))], rec.logs(events), rec.logs(events))
    report = replay(cli, "otlp.jsonl")
    assert report["answers"] == 1
    assert report["left_out"]["traces with too many spans, cut"] == 1


def test_what_earlier_replays_wrote_is_no_recorded_score(cli: CommandLine) -> None:
    """Neither their events nor their run spans; they are no answers either."""
    replayed = {"agenteval.evaluation.replayed": True}
    cli.file(
        "otlp.jsonl",
        rec.lines(
            rec.traces([rec.answer_span(0, polite(0))]),
            rec.ours([rec.run_span(0, {"gen_ai.evaluation.polite.score": 0.0}, **replayed)]),
            rec.logs([rec.result_event(0, "polite", 0.0, "fail", **replayed)]),
        ),
    )
    report = replay(cli, "otlp.jsonl")
    assert (report["answers"], report["with_recorded_scores"]) == (1, 0)
    assert "No recorded scores" in cli(
        "replay", "--settings", cli.settings(SETTINGS), "otlp.jsonl", "--results", "b"
    )


def test_broken_lines_are_named_and_counted(cli: CommandLine) -> None:
    """By file and line, without their text; what stands around them is read, of a cut .gz too."""
    good = rec.lines(rec.traces([rec.answer_span(0, polite(0))]))
    cut = rec.lines(rec.traces([rec.answer_span(1, "secret")]))[:-20] + "\n"
    cli.file(
        "otlp.jsonl", good + cut + "[]\n" + '{"other": 1}\n\n' + rec.lines({"resourceMetrics": []})
    )
    packed = gzip.compress(
        rec.lines(*(rec.traces([rec.answer_span(n, polite(n))]) for n in range(2, 800))).encode()
    )
    (cli.folder / "more.jsonl.gz").write_bytes(packed[: len(packed) // 2])
    report = replay(cli, "otlp.jsonl", "more.jsonl.gz")
    assert report["left_out"]["broken lines"] == 4
    for place in (
        "otlp.jsonl:2: ",
        "otlp.jsonl:3: ",
        "otlp.jsonl:4: is no OTLP in JSON (none of",
        "more.jsonl.gz: ends",
    ):
        assert place in cli.err
    assert "secret" not in cli.err
    assert 100 < report["answers"] < 799


def test_files_of_one_request_are_read_as_the_sidecar_reads_them(cli: CommandLine) -> None:
    """In JSON over several lines, and in protobuf; what is neither is an error that names the file."""
    text = json.dumps(rec.traces([rec.answer_span(0, polite(0))]), indent=2)
    for name, written in (("one.json", text), ("two.json", re.sub(r"^\{\s+", "{", text))):
        cli.file(name, written)
        assert replay(cli, name, "--results", f"of-{name}l")["answers"] == 1
    cli.file("cut.jsonl", '{"cut\n' + rec.lines(rec.traces([rec.answer_span(1, polite(1))])))
    assert replay(cli, "cut.jsonl", "--results", "of-cut.jsonl")["answers"] == 1
    (cli.folder / "one.binpb").write_bytes(trace_request(new_trace_id()))
    assert replay(cli, "one.binpb", "--results", "of-binpb.jsonl")["answers"] == 1
    (cli.folder / "other.bin").write_bytes(b"\xff\xff neither")
    replay(cli, "other.bin", "--results", "b.jsonl", code=2)
    assert "other.bin: is text, neither JSON nor CSV with a header, and no OTLP" in cli.err
    replay(cli, "missing.jsonl", "--results", "c.jsonl", code=2)
    assert "missing.jsonl: cannot be read" in cli.err


def test_answers_are_chosen_by_time_service_agent_and_recorded_score(cli: CommandLine) -> None:
    """Times are those of the host that answered, whatever the order; a clock that is wrong by days
    changes no other.
    """
    spans = [rec.answer_span(number, polite(number), at_s=number * 86_400) for number in range(4)]
    spans[0]["endTimeUnixNano"] = "1"  # before it began
    events = [rec.result_event(number, "polite", number / 4) for number in range(4)]
    cli.file(
        "otlp.jsonl",
        rec.lines(
            rec.traces([rec.answer_span(9, polite(9), agent="sales", at_s=86_400)], service="desk"),
            rec.logs(events),
            rec.traces(spans),
        ),
    )
    for number, (options, count) in enumerate(
        (
            (("--since", "2026-03-02", "--until", "2026-03-03T00:00Z"), 2),
            (("--until", "2026-03-01T00:00:01"), 1),
            (("--service", "desk"), 1),
            (("--agent", "support"), 4),
            (("--agent", "support", "--agent", "sales"), 5),
            (("--below", "polite=0.5"), 2),
            (("--at-least", "polite=0.25", "--below", "polite=0.75"), 2),
            (("--limit", 3), 3),
        )
    ):
        report = replay(cli, "otlp.jsonl", *options, "--results", f"{number}.jsonl")
        assert report["answers"] == count, options
    replay(cli, "otlp.jsonl", "--since", "2035-01-01", "--results", "none.jsonl", code=2)
    assert "other answers, left out: 5" in cli.err
    assert "no answer to score in otlp.jsonl" in cli.err


def test_scores_of_other_scales_are_compared_normalized(cli: CommandLine) -> None:
    """A run span has the raw score alone: the criterion's scale, as it is now, says what it means."""
    settings = SETTINGS + "criteria: {default: [{name: polite, scale: likert5}]}"
    runs = [rec.run_span(n, {"gen_ai.evaluation.polite.score": 1.0 + 4 * n}) for n in range(2)]
    record(cli, [rec.answer_span(n, polite(n)) for n in range(2)], rec.ours(runs))
    report = replay(cli, "otlp.jsonl", "--below", "polite=0.5", settings=settings)
    assert report["answers"] == 1


def test_failing_answers_become_a_dataset(cli: CommandLine) -> None:
    """`evaluate` reads it; secrets are out of it, and where each comes from is in it."""
    secret = "sk-ant-api03-" + "a1B2" * 12
    texts = [polite(0), f"The key is {secret}.", "No."]
    record(cli, [rec.answer_span(number, text) for number, text in enumerate(texts)])
    replay(cli, "otlp.jsonl", "--dataset", "failing.jsonl")
    assert "2 failing answers in failing.jsonl: agenteval-otel evaluate failing.jsonl" in cli.err
    text = (cli.folder / "failing.jsonl").read_text()
    assert secret not in text
    with Dataset(["failing.jsonl"]) as dataset:
        assert dataset.check() == 2
        rows = list(dataset)
    assert [row.evaluation_input.prompt for row in rows] == ["Question 1?", "Question 2?"]
    assert [(row.evaluation_input.metadata or {})[REPLAY].partition("-")[0] for row in rows] == [
        rec.ids(1)[0],
        rec.ids(2)[0],
    ]
    cli(
        "evaluate",
        "failing.jsonl",
        "--settings",
        cli.settings(SETTINGS),
        "--fail-under",
        "polite=0.5",
        code=1,
    )


def test_an_agent_has_the_evaluators_of_its_settings(cli: CommandLine) -> None:
    """As live; all others have those of the file."""
    settings = SETTINGS + "agents: {sales: {evaluators: [ResponseHealth]}}"
    spans = [rec.answer_span(0, polite(0)), rec.answer_span(1, "Hi.", agent="sales")]
    record(cli, spans)
    replay(cli, "otlp.jsonl", settings=settings)
    assert {line["agent"]: line["results"][0]["criterionName"] for line in results(cli.folder)} == {
        "support": "polite",
        "sales": "response_health",
    }


def test_an_agent_without_evaluators_of_answers_is_left_out(cli: CommandLine) -> None:
    """Said once, with the reason; without any other agent it is an error."""
    whole = "evaluators: [Repetition]"
    spans = [rec.answer_span(0, polite(0)), rec.answer_span(1, "Hi.", agent="sales")]
    record(cli, spans)
    report = replay(cli, "otlp.jsonl", settings=SETTINGS + f"agents: {{sales: {{{whole}}}}}")
    assert (report["answers"], report["left_out"]["unselected"]) == (1, 1)
    assert "answers of sales are left out: evaluators: no evaluator of answers" in cli.err
    replay(cli, "otlp.jsonl", "--results", "b", settings=whole, code=2)
    assert "conversations are not replayed" in cli.err


def test_recorded_scores_of_any_type_are_read(cli: CommandLine) -> None:
    """What is no text and no number counts as absent."""
    event = rec.result_event(0, "polite", 0.5)
    event["attributes"] += [
        {"key": key, "value": {"arrayValue": {"values": [{"stringValue": "x"}]}}}
        for key in (
            "gen_ai.evaluation.score.label",
            "gen_ai.evaluation.evaluator.version",
            "error.type",
        )
    ]
    record(cli, [rec.answer_span(0, polite(0))], rec.logs([event]))
    [compared] = replay(cli, "otlp.jsonl")["compared"]
    assert (compared["answers"], compared["recorded"]["mean"]["mean"]) == (1, 0.5)


def test_answers_without_content_are_counted(cli: CommandLine) -> None:
    """They cannot be scored; nor can spans that no mapper reads."""
    bare = rec.span(0, "chat", {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"})
    other = rec.span(1, "GET /", {"http.request.method": "GET"})
    record(cli, [bare, other])
    replay(cli, "otlp.jsonl", code=2)
    assert "answers without content: 1" in cli.err


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (("--since", "yesterday"), "--since: expected 2026-03-01"),
        (("http://127.0.0.1:1",), "an address is of Jaeger or of Tempo: --from jaeger"),
        (("--below", "tone"), "--below: expected CRITERION=LIMIT"),
        (("--below", "tone=7"), "--below: expected"),
        (("--header", "a b=c"), "--header: expected"),
    ],
)
def test_wrong_options_are_named(cli: CommandLine, options: tuple[str, ...], error: str) -> None:
    """Before anything is read."""
    cli.file("otlp.jsonl", "")
    places: tuple[str, ...] = ("otlp.jsonl",)
    if options[0] == "--header":
        places = ("--from", "jaeger", "http://127.0.0.1:1", "--since", "1h")
    elif not options[0].startswith("--"):
        places = ()
    replay(cli, *places, *options, code=2)
    assert error in cli.err


def test_a_damaged_gz_is_read_up_to_there(cli: CommandLine) -> None:
    """What comes before the damage is scored, and the file is named. Python 3.14 unpacks 128 KiB at
    once, and gives nothing of a piece that is damaged.
    """
    lines = rec.lines(*(rec.traces([rec.answer_span(n, polite(n))]) for n in range(500)))
    packer = zlib.compressobj(wbits=31)
    packed = packer.compress(lines.encode()) + packer.flush(zlib.Z_FULL_FLUSH)
    (cli.folder / "damaged.jsonl.gz").write_bytes(packed + b"\xff" * 100)
    report = replay(cli, "damaged.jsonl.gz")
    assert report["left_out"]["broken lines"] == 1
    assert "damaged.jsonl.gz: ends early" in cli.err
    assert report["answers"] > 200
