"""Which capabilities a pipeline has, by its settings. The one place that knows them all."""

from __future__ import annotations

from agenteval_otel.capture.assembly.conversations import ConversationSettings
from agenteval_otel.config.settings import Settings
from agenteval_otel.engine.capabilities.conversations import Conversations
from agenteval_otel.engine.capabilities.judge_health import JudgeHealth, JudgeHealthSettings
from agenteval_otel.engine.capabilities.objectives.watch import Objectives, ObjectiveSettings
from agenteval_otel.engine.capability import MakeCapability
from agenteval_otel.engine.objectives import BreachSettings, Callback
from agenteval_otel.engine.pipeline import Pipeline
from agenteval_otel.telemetry.forward import EventStream


def capabilities_of(
    settings: Settings, own: Settings, events: EventStream | None
) -> list[MakeCapability]:
    """Return what makes the capabilities of a pipeline, in the order in which they hear of answers.

    `own` are the settings of what is evaluated in this process. With `events`, answers are sent to
    the sidecar, which evaluates them.
    """
    makers = of_every_pipeline(
        own.breach,
        on_breach=own.on_breach,
        on_recovery=own.on_recovery,
        judge_health=settings.judge_health,
        conversations=settings.conversations,
    )
    if events is not None:
        # with the form in which answers are sent, which few hosts need
        from agenteval_otel.engine.capabilities.forwarding import Forwarding

        makers.append(Forwarding.made_by(events))
    if settings.off_peak is not None:
        # with the judges, which few hosts need
        from agenteval_otel.engine.capabilities.off_peak.off_peak import OffPeak

        makers.append(OffPeak.made_by(settings.off_peak))
    windows = {
        name: agent.ground_truth_window_s
        for name, agent in settings.agents.items()
        if agent.ground_truth_window_s is not None
    }
    is_awaited = settings.ground_truth_window_s or any(windows.values())
    if is_awaited and events is None:  # else the sidecar waits
        # with the index of questions, which few hosts need
        from agenteval_otel.engine.capabilities.late_truth import PendingAnswers

        makers.append(PendingAnswers.made_by(settings.ground_truth_window_s, windows))
    if own.notify:
        # with the queues of messages, which few hosts need
        from agenteval_otel.engine.capabilities.notify.notifier import Notifier

        makers.append(Notifier.made_by(own.notify))
    return [*makers, *settings.capabilities]


def of_every_pipeline(
    breach: BreachSettings,
    *,
    on_breach: Callback | None = None,
    on_recovery: Callback | None = None,
    judge_health: JudgeHealthSettings | None = None,
    conversations: ConversationSettings | None = None,
) -> list[MakeCapability]:
    """Return what makes the capabilities that every pipeline has."""
    objectives = ObjectiveSettings(breach, on_breach, on_recovery)
    return [
        Conversations.made_by(conversations or ConversationSettings()),
        Objectives.made_by(objectives),
        JudgeHealth.made_by(judge_health or JudgeHealthSettings()),
    ]


def breach_of(pipeline: Pipeline) -> BreachSettings:
    """Return when an objective of a pipeline counts as breached."""
    objectives = pipeline.capabilities.of(Objectives)
    return BreachSettings() if objectives is None else objectives.settings.breach
