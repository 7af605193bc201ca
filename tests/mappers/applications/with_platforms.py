"""Langfuse, MLflow and LangSmith: agents under the platforms' own decorators and clients; and agents
of Strands, which has its own spans.
"""

from __future__ import annotations

import json
import os
from typing import Any

from shared import (
    MESSAGES,
    MODEL_URL,
    QUESTION,
    SYSTEM,
    ask_langchain,
    exported,
    get_weather,
    langchain_agent,
    langchain_chain,
    openai_client,
    tool_loop,
)

QUESTION_OF_LANGCHAIN = {"messages": [{"role": "user", "content": QUESTION}]}


def tool_runner(tool: Any) -> Any:
    """What a tool loop runs: an instrumented tool, with the arguments as data."""
    return lambda call: json.dumps(tool(**json.loads(call.function.arguments)))


def report(city: str) -> Any:
    """The weather as data."""
    return json.loads(get_weather(city))


# --- Langfuse


def _langfuse(provider: Any) -> Any:
    from langfuse import Langfuse

    url = os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"]  # its own export is ignored there
    return Langfuse(public_key="pk", secret_key="sk", host=url, tracer_provider=provider)


def langfuse_agent() -> None:
    with exported() as provider:
        client = _langfuse(provider)
        from langfuse import observe, propagate_attributes
        from langfuse.openai import openai

        model = openai.OpenAI(base_url=f"{MODEL_URL}/v1", api_key="test", max_retries=0)
        tool = observe(name="get_weather", as_type="tool")(report)

        @observe(name="weather", as_type="agent")
        def weather(question: str) -> str:
            return tool_loop(model, tool_runner(tool))

        with propagate_attributes(
            user_id="ann@example.com",
            session_id="session-1",
            tags=["beta"],
            metadata={"tenant": "acme"},
        ):
            weather(QUESTION)
        client.flush()


def langfuse_stream() -> None:
    with exported() as provider:
        client = _langfuse(provider)
        from langfuse.openai import openai

        model = openai.OpenAI(base_url=f"{MODEL_URL}/v1", api_key="test", max_retries=0)
        for _ in model.chat.completions.create(
            model="gpt-5-mini",
            messages=MESSAGES,
            stream=True,
            stream_options={"include_usage": True},
        ):
            pass
        client.flush()


def langfuse_failing_tool() -> None:
    with exported() as provider:
        client = _langfuse(provider)
        from langfuse import observe
        from langfuse.openai import openai

        model = openai.OpenAI(base_url=f"{MODEL_URL}/v1", api_key="test", max_retries=0)

        @observe(name="get_weather", as_type="tool")
        def failing(city: str) -> str:
            raise TimeoutError("the weather service does not answer")

        def run(call: Any) -> str:
            try:
                return failing(**json.loads(call.function.arguments))
            except TimeoutError as error:
                return f"error: {error}"

        @observe(name="weather", as_type="agent")
        def weather(question: str) -> str:
            return tool_loop(model, run)

        weather(QUESTION)
        client.flush()


def langfuse_langchain() -> None:
    with exported() as provider:
        client = _langfuse(provider)
        from langfuse.langchain import CallbackHandler

        langchain_agent("weather_agent").invoke(
            QUESTION_OF_LANGCHAIN, config={"callbacks": [CallbackHandler()]}
        )
        client.flush()


def langfuse_no_content() -> None:
    with exported() as provider:
        from langfuse import Langfuse

        url = os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"]
        client = Langfuse(public_key="pk", secret_key="sk", host=url, tracer_provider=provider)
        with client.start_as_current_observation(
            name="ask", as_type="generation", model="gpt-5-mini"
        ) as generation:
            answer = openai_client().chat.completions.create(model="gpt-5-mini", messages=MESSAGES)
            usage = answer.usage
            generation.update(
                usage_details={"input": usage.prompt_tokens, "output": usage.completion_tokens}
            )
        client.flush()


# --- MLflow


def _mlflow(conventions: bool = False) -> Any:
    endpoint = os.environ.pop("OTEL_EXPORTER_OTLP_ENDPOINT")  # it would send metrics there too
    os.environ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"] = f"{endpoint}/v1/traces"
    os.environ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"] = "http/protobuf"
    os.environ["MLFLOW_TRACKING_URI"] = endpoint
    if conventions:
        os.environ["MLFLOW_ENABLE_OTEL_GENAI_SEMCONV"] = "true"
    import mlflow

    return mlflow


def _mlflow_ends() -> None:
    from mlflow.tracing.provider import provider

    provider.get().force_flush()


def mlflow_agent(conventions: bool = False) -> None:
    mlflow = _mlflow(conventions)
    mlflow.openai.autolog()
    tool = mlflow.trace(report, name="get_weather", span_type="TOOL")

    @mlflow.trace(name="weather", span_type="AGENT")
    def weather(question: str) -> str:
        mlflow.update_current_trace(
            metadata={"mlflow.trace.user": "ann@example.com", "mlflow.trace.session": "session-1"},
        )
        return tool_loop(openai_client(), tool_runner(tool))

    weather(QUESTION)
    _mlflow_ends()


def mlflow_conventions() -> None:
    mlflow_agent(conventions=True)


def mlflow_stream() -> None:
    mlflow = _mlflow()
    mlflow.openai.autolog()
    for _ in openai_client().chat.completions.create(
        model="gpt-5-mini",
        messages=MESSAGES,
        stream=True,
        stream_options={"include_usage": True},
    ):
        pass
    _mlflow_ends()


def mlflow_langchain() -> None:
    mlflow = _mlflow()
    mlflow.langchain.autolog()
    ask_langchain()
    _mlflow_ends()


def mlflow_langchain_chain() -> None:
    mlflow = _mlflow()
    mlflow.langchain.autolog()
    langchain_chain()
    _mlflow_ends()


# --- LangSmith


def _langsmith(provider: Any) -> Any:
    os.environ["LANGSMITH_TRACING"] = "true"
    os.environ["LANGSMITH_API_KEY"] = "test"
    os.environ["LANGSMITH_TRACING_MODE"] = "otel"
    os.environ["LANGSMITH_REVISION_ID"] = "v1"
    from langsmith import Client

    return Client(tracing_mode="otel", otel_tracer_provider=provider)


def langsmith_agent() -> None:
    with exported() as provider:
        client = _langsmith(provider)
        from langsmith import traceable
        from langsmith.wrappers import wrap_openai

        model = wrap_openai(openai_client(), tracing_extra={"client": client})
        tool = traceable(run_type="tool", name="get_weather", client=client)(report)

        @traceable(
            run_type="chain",
            name="weather",
            client=client,
            tags=["beta"],
            metadata={"tenant": "acme", "session_id": "session-1", "user_id": "ann@example.com"},
        )
        def weather(question: str) -> str:
            return tool_loop(model, tool_runner(tool))

        weather(QUESTION)
        client.flush()


def langsmith_stream() -> None:
    with exported() as provider:
        client = _langsmith(provider)
        from langsmith.wrappers import wrap_openai

        model = wrap_openai(openai_client(), tracing_extra={"client": client})
        for _ in model.chat.completions.create(
            model="gpt-5-mini",
            messages=MESSAGES,
            stream=True,
            stream_options={"include_usage": True},
        ):
            pass
        client.flush()


def langsmith_langchain(ask: Any = ask_langchain) -> None:
    with exported() as provider:
        client = _langsmith(provider)
        from langsmith import run_helpers

        with run_helpers.tracing_context(enabled=True, client=client):
            ask()
        client.flush()


def langsmith_langchain_chain() -> None:
    langsmith_langchain(langchain_chain)


def langsmith_no_content() -> None:
    os.environ["LANGSMITH_HIDE_INPUTS"] = os.environ["LANGSMITH_HIDE_OUTPUTS"] = "true"
    with exported() as provider:
        client = _langsmith(provider)
        from langsmith.wrappers import wrap_openai

        model = wrap_openai(openai_client(), tracing_extra={"client": client})
        model.chat.completions.create(model="gpt-5-mini", messages=MESSAGES)
        client.flush()


# --- Strands Agents


def strands_agent(fails: bool = False, conventions: str = "") -> None:
    if conventions:
        os.environ["OTEL_SEMCONV_STABILITY_OPT_IN"] = conventions
    with exported():
        from strands import Agent, tool
        from strands.models.openai import OpenAIModel

        @tool(name="get_weather")
        def weather(city: str) -> str:
            """The weather in a city."""
            if fails:
                raise TimeoutError("the weather service does not answer")
            return get_weather(city)

        model = OpenAIModel(
            client_args={"base_url": f"{MODEL_URL}/v1", "api_key": "test"}, model_id="gpt-5-mini"
        )
        agent = Agent(name="weather", model=model, tools=[weather], system_prompt=SYSTEM)
        agent.callback_handler = lambda **_: None
        agent(QUESTION)


def strands_failing_tool() -> None:
    strands_agent(fails=True)


def strands_conventions() -> None:
    strands_agent(conventions="gen_ai_latest_experimental")
