"""``agenteval-otel feedback``: send what a person says of an answer to the sidecar.

The ground truth of an answer can be sent instead.
"""

from __future__ import annotations

import argparse
import json
import os
from typing import Any, Final
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from agenteval_otel.errors import ConfigurationError
from agenteval_otel.instrumentation.feedback.payload import OfPerson, OfTruth

DESCRIPTION = (
    "Send what a person says of an answer to the sidecar, as POST /v1/feedback. That is a thumb, a score from 0 to 1, "
    "a comment, a better answer, or the right answer (--ground-truth). The rated answer is identified by its reference "
    "(evaluation_reference() in the handler, or the response header of the middleware), by trace and span, by the "
    "response's id, or by the conversation's. Exit codes: 0 taken, 1 refused by the sidecar, 2 could not run."
)
_OPTIONS: Final = (
    ("--reference", "TEXT", "what evaluation_reference() gave"),
    ("--trace-id", "HEX", "of the answer's trace"),
    ("--span-id", "HEX", "of the answer's span, with --trace-id"),
    ("--response-id", "TEXT", "the model's own id"),
    ("--conversation-id", "TEXT", "of the conversation. The feedback is about its newest answer"),
    ("--agent", "NAME", "which agent answered, where nothing else says it"),
    ("--comment", "TEXT", "in the person's words"),
    ("--correction", "TEXT", "the answer that it should have been"),
    ("--user-id", "TEXT", "who says it. It is exported as a hash"),
    ("--ground-truth", "TEXT", "what a right answer says: alone, for evaluators that wait for it"),
    ("--prompt", "TEXT", "with --ground-truth, the question that it answers"),
    ("--name", "CRITERION", "what it is called beside the other scores (default: user_feedback)"),
)
_TIMEOUT_S: Final = 10.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--url", default="http://127.0.0.1:4328", help="of the sidecar (default: %(default)s)"
    )
    for option, metavar, text in _OPTIONS:
        parser.add_argument(option, metavar=metavar, help=text)
    parser.add_argument("--thumbs", choices=("up", "down"))
    parser.add_argument("--score", metavar="NUMBER", type=float, help="from 0, worst, to 1")
    parser.epilog = "The token is read from AGENTEVAL_SIDECAR__TOKEN."


def run(arguments: argparse.Namespace) -> int:
    names = [option.removeprefix("--").replace("-", "_") for option, _, _ in _OPTIONS]
    fields: dict[str, Any] = {}
    for name in (*names, "thumbs", "score"):
        value = getattr(arguments, name)
        if value is not None:
            fields[name] = value
    # wrong ones are named before anything is sent
    if "ground_truth" in fields:
        OfTruth(**fields)
    else:
        OfPerson(**fields)
    token = os.environ.get("AGENTEVAL_SIDECAR__TOKEN")
    headers = {"content-type": "application/json"}
    if token is not None:
        headers["authorization"] = f"Bearer {token}"
    url = f"{arguments.url.rstrip('/')}/v1/feedback"
    try:
        with urlopen(Request(url, json.dumps(fields).encode(), headers), timeout=_TIMEOUT_S):
            print("taken")
            return 0
    except HTTPError as refusal:
        with refusal:
            why = refusal.read(500).decode(errors="replace").strip()
        print(f"refused: {refusal.code} {why}")
        return 1
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"cannot be reached ({error}): {arguments.url}", path="--url"
        ) from None
