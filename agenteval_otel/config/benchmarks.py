"""Settings of benchmarks, which `agenteval-otel benchmark` runs."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from agenteval_otel.components.explained import FrozenSettings


class BenchmarkSettings(FrozenSettings):
    """A named benchmark: a dataset, the evaluators of the settings or of an agent, and objectives.

    Attributes:
        dataset: Files of inputs as `agenteval-otel evaluate` reads them, relative to the working
            directory.
        run: ``module:function`` that makes the answers. Without one the dataset has them.
        columns: Columns of the dataset by the fields that they hold, such as
            ``{prompt: question}``.
        agent: The agent whose evaluators and criteria apply.
        objectives: The least mean of each criterion, 0 to 1, besides the criteria's own objectives.
    """

    dataset: tuple[str, ...] = Field(min_length=1)
    run: str | None = None
    columns: dict[str, str] = Field(default_factory=dict)
    agent: str | None = None
    objectives: dict[str, Annotated[float, Field(ge=0, le=1)]] = Field(default_factory=dict)
