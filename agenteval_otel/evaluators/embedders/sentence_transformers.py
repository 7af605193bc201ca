"""The embedder with a model on this machine, by sentence-transformers.

The package is imported, and the model loaded, in the worker process.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from pydantic import Field, model_validator

from agenteval_otel.components.explained import ComponentError
from agenteval_otel.errors import ConfigurationError, EvaluationError
from agenteval_otel.evaluators.embedders.base import Embedder, unit_rows
from agenteval_otel.runtime.fork import ForkSafeLock

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


_EXTRA: Final = (
    'sentence-transformers is not installed: pip install "agenteval-otel[sentence-transformers]"'
)
# Two threads that need the same model load it once, and a tokenizer may not be used by two threads
# at once.
_LOCK: Final = ForkSafeLock()


class SentenceTransformerEmbedder(Embedder, type="sentence_transformers"):
    """Compares meaning, by a model on this machine.

    Two texts are near when they say the same, also in other words.

    Needs the extra ``sentence-transformers``, and the model's folder or a downloaded model's name.
    Nothing is downloaded unless `allow_download`, and code that comes with a model is never run.
    Blocks: some milliseconds per text, seconds while the model is loaded. Many models read 256
    tokens of a text and ignore the rest.

    Attributes:
        model: Folder of the model, which begins with ``/``, ``./``, ``../`` or ``~``, or its name.
        batch_size: Texts that go through the model together.
        threads: Processor threads of the model in the worker process. Elsewhere the process's own
            setting applies.
        max_characters: Longer texts are cut off before the model's own limit.
        allow_download: Whether a missing model is downloaded.
    """

    fingerprint_exclude: ClassVar[frozenset[str]] = frozenset(
        {"batch_size", "threads", "allow_download"}
    )

    model: str = Field(min_length=1, max_length=1_024)
    batch_size: int = Field(default=32, ge=1, le=1_024)
    threads: int = Field(default=1, ge=1, le=64)
    max_characters: int = Field(default=16_384, ge=1, le=1_048_576)
    allow_download: bool = False

    @model_validator(mode="after")
    def _can_be_loaded(self) -> Self:
        problem = None
        if find_spec("sentence_transformers") is None:
            problem = ConfigurationError(_EXTRA)
        elif self.model.startswith(("/", "./", "../", "~")):
            if not Path(self.model).expanduser().is_dir():
                problem = ConfigurationError("there is no such folder", path="model")
        elif Path(self.model).exists():
            # The library would take it for the model, and anybody may have made the current folder.
            wrong = f"the current folder has something of this name: write ./{self.model} if that is the model"
            problem = ConfigurationError(wrong, path="model")
        if problem is not None:
            raise ComponentError(problem, of_model=True)
        return self

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return one row per text, of length 1. Raises `EvaluationError` without a model.

        A blank text has a row of zeros.
        """
        import numpy as np

        if not texts:
            return np.zeros((0, 1), dtype=np.float32)
        model = self._loaded()
        cut = [text[: self.max_characters] for text in texts]
        with _LOCK:
            vectors = model.encode(
                cut, batch_size=self.batch_size, show_progress_bar=False, convert_to_numpy=True
            )
        rows = unit_rows(vectors.reshape(len(texts), -1))
        for row, text in zip(rows, cut, strict=True):
            if not text.strip():
                row[:] = 0.0
        return rows

    def prepare(self) -> None:
        """Import the package and load the model, with `threads` threads.

        `embed` raises what fails.
        """
        # Before the import, which reads them; the process is ours.
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        if not self.allow_download:
            os.environ.setdefault("HF_HUB_OFFLINE", "1")
        try:
            import torch
            from tqdm import tqdm

            torch.set_num_threads(self.threads)
            tqdm.monitor_interval = 0  # else it has a thread at the fork
            self._loaded()
        except Exception:
            return

    def _loaded(self) -> Any:
        with _LOCK:
            model = self._model
        if isinstance(model, str):
            raise EvaluationError(model, error_type="model_unavailable")
        return model

    @cached_property
    def _model(self) -> Any:
        """Return the model, or a text that says why it cannot be loaded."""
        try:
            from sentence_transformers import SentenceTransformer

            name = str(Path(self.model).expanduser()) if self.model.startswith("~") else self.model
            with _without_bars():
                return SentenceTransformer(
                    name, device="cpu", local_files_only=not self.allow_download
                )
        except Exception as error:
            return f"the model {self.model!r} cannot be loaded ({type(error).__name__})"


@contextmanager
def _without_bars() -> Iterator[None]:
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
