"""A plain function under @monitor, and what became of its calls. Run it: python examples/01_plain_function.py"""

from agenteval_otel import accounting, configure, flush, monitor
from agenteval_otel.storage import ConsoleStorageProvider

configure(sample_rate=1.0, storage=[ConsoleStorageProvider()])


@monitor
def answer(question: str) -> str:
    if "secret" in question:
        return "I'm sorry, but I can't help with that."
    return f"About {question}: it is on its way."


for question in ("my order", "the secret recipe", "my invoice"):
    answer(question)

flush(5.0)
print({outcome: count for outcome, count in accounting().items() if count})
