"""Runs one application; the last line of the output is its recording."""

import json
import sys
from importlib.metadata import version

import agenteval_otel.capture  # registers the formats, which say what is read of objects
from agenteval_otel.capture.detached import take
from tests.capture.applications import LIBRARIES, agent_libraries, providers
from tests.capture.recordings import to_json

assert agenteval_otel.capture
name = sys.argv[1]
client, given = (getattr(providers, name, None) or getattr(agent_libraries, name))()
forms = {}
for form, (value, facts) in given.items():
    taken = value if "streamed" in form else take(value).value
    key = "chunks" if "streamed" in form else "answer"
    forms[form] = {key: to_json(taken), "facts": facts}
libraries = {library: version(library) for library in LIBRARIES[name]}
print(json.dumps({"client": client, "libraries": libraries, "forms": forms}))
