"""Applications that ask real client libraries, one function each: ``record.py`` runs them in
environments of their own, and `LIBRARIES` says what these need.
"""

LIBRARIES = {
    "anthropic_message": ("anthropic",),
    "anthropic_tools": ("anthropic",),
    "autogen": ("autogen-agentchat",),
    "bedrock": ("boto3",),
    "cohere": ("cohere",),
    "crewai": ("crewai",),
    "google_genai": ("google-genai",),
    "haystack": ("haystack-ai",),
    "langgraph": ("langgraph", "langchain-openai"),
    "litellm": ("litellm",),
    "ollama_chat": ("ollama",),
    "ollama_generate": ("ollama",),
    "openai_agents": ("openai-agents",),
    "openai_completions": ("openai",),
    "openai_responses": ("openai",),
    "openai_tools": ("openai",),
    "pydantic_ai": ("pydantic-ai-slim",),
    "pydantic_ai_tools": ("pydantic-ai-slim",),
    "strands": ("strands-agents",),
}
