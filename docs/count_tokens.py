"""Measure the tokens of each rubric's question: ``python docs/count_tokens.py``, then
``python docs/generate.py``.

Needs the package ``bpe-openai``, which carries the vocabulary o200k_base with it and is no
dependency of ours: ``uv run --with bpe-openai python docs/count_tokens.py``. Other models cut text
otherwise; English differs by some percent between them.
"""

from __future__ import annotations

import importlib.metadata
import json
import sys
from pathlib import Path

__all__ = ["main"]


def main() -> int:
    """Write ``docs/rubrics/tokens.json``."""
    import bpe_openai

    sys.path.insert(0, str(Path(__file__).parent))
    import generate

    encoding = bpe_openai.get_encoding("o200k_base")
    questions = {}
    for name in generate.names():
        request = generate.question_of(name)
        data = request.prompt.split(f"\nDATA-{'0' * 32}\n")[1]
        questions[name] = {
            "digest": generate.digest_of(request),
            "tokens": len(encoding.encode(f"{request.system}\n{request.prompt}")),
            "case": len(encoding.encode(data)),
            "form": len(encoding.encode(json.dumps(request.answer_form))),
        }
    version = importlib.metadata.version("bpe-openai")
    found = {"tokenizer": f"o200k_base, by bpe-openai {version}", "questions": questions}
    generate.TOKENS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    sys.stdout.write(f"{len(questions)} questions measured\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
