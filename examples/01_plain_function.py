"""A plain function under `@monitor`: what its answers score, and what became of its calls.

uv run python examples/01_plain_function.py
"""

from agenteval_otel import accounting, configure, flush, monitor
from agenteval_otel.storage import ConsoleStorageProvider

# Everything is evaluated, one line per answer goes to standard error. Without this call, @monitor
# evaluates at most ten answers a second and sends the scores to the OpenTelemetry set-up of your
# application.
configure(sample_rate=1.0, storage=[ConsoleStorageProvider()])


@monitor  # checks that an answer is one: not empty, not cut off, no refusal, no error text
def answer(question: str) -> str:
    if "secret" in question:
        return "I'm sorry, but I can't help with that."
    if "invoice" in question:
        return ""
    return f"About {question}: it is on its way."


for question in ("my order", "the secret recipe", "my invoice"):
    answer(question)  # what it returns and raises is untouched, and nobody waits for the scores

# A script that ends has to wait for them; a server that goes on need not.
flush(5.0)
print({outcome: count for outcome, count in accounting().items() if count})
