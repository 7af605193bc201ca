"""What the files say of one sidecar, and of several on one machine behind the Collector's balancing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from agenteval_otel.errors import ConfigurationError

MOST_SIDECARS: Final = 64
_FIRST_PORT: Final = 4327
_HEALTH: Final = (
    "import http.client as h; c = h.HTTPConnection('127.0.0.1', {port}, timeout=3); c.request('GET', '/healthz'); "
    "raise SystemExit(c.getresponse().status != 200)"
)
"""Checks a sidecar's health from within its container. It ignores the environment's proxy settings."""
_ONE_BEHIND_COMPOSE: Final = "COLLECTOR_SIDECAR_ENDPOINT: sidecar:4327\n"
_NAMES_OF_LINES: Final = (
    "compose_make_key",
    "compose_sampling_key",
    "compose_shared_folder",
    "compose_shared_volume",
    "compose_third_file",
    "pod_third_file",
    "shared_user",
)
"""Lines that only the files of several sidecars have."""


def number_of_sidecars(text: str) -> int:
    """Return the number that the option names. Raises `ConfigurationError`."""
    digits = text.strip()
    number = int(digits) if digits.isascii() and digits.isdecimal() and len(digits) < 4 else 0
    if not 1 <= number <= MOST_SIDECARS:
        raise ConfigurationError(
            f"must be a number from 1 to {MOST_SIDECARS}, found {text!r}", path="sidecars"
        )
    return number


def values_by_sidecar(number: int) -> list[dict[str, str]]:
    """Return what each sidecar's own text is filled with. A single one has no number."""
    if number == 1:
        return [_values(_FIRST_PORT) | {"suffix": "", "folder": "", "ports": "", "number": ""}]
    values = []
    for place in range(1, number + 1):
        grpc_port = _FIRST_PORT + 2 * (place - 1)
        own = {
            "suffix": f"-{place}",
            "folder": f"/{place}",
            "ports": f"--grpc-port {grpc_port} --http-port {grpc_port + 1} ",
            "number": f", {place} of {number}",
        }
        values.append(_values(grpc_port) | own)
    return values


def shared_values(sidecars: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Return what the files that name all sidecars are filled with."""
    if len(sidecars) == 1:
        return {"all": "", "each": "", "third_config": "", "pod_third_config": ""}
    addresses = ", ".join(f"127.0.0.1:{sidecar['grpc_port']}" for sidecar in sidecars)
    return {
        "all": "-*",
        "each": f"-{{1..{len(sidecars)}}}",
        "third_config": ", --config=/etc/to-sidecars.yaml",
        "pod_third_config": ", --config=/etc/otelcol/to-sidecars.yaml",
        "sidecars": f"[{addresses}]",
    }


def shared_lines(sidecars: Sequence[Mapping[str, str]], to_sidecars: str) -> dict[str, str]:
    """Return the lines that the files of several sidecars have beside those of one.

    `to_sidecars` is the text of the Collector's file that balances.
    """
    if len(sidecars) == 1:
        return {"compose_endpoint": _ONE_BEHIND_COMPOSE} | dict.fromkeys(_NAMES_OF_LINES, "")
    addresses = ", ".join(f"sidecar{sidecar['suffix']}:4327" for sidecar in sidecars)
    indented = "".join(
        f"  {line}" if line.strip() else line for line in to_sidecars.splitlines(True)
    )
    return {
        "compose_endpoint": f'COLLECTOR_SIDECARS: "[{addresses}]"\n',
        "compose_make_key": "#   echo AGENTEVAL_SAMPLING__KEY=$(openssl rand -hex 32) >> .env\n",
        "compose_sampling_key": (
            "# The same for all, so that they decide alike.\n"
            "AGENTEVAL_SAMPLING__KEY: ${AGENTEVAL_SAMPLING__KEY:?make one with openssl rand -hex 32}\n"
        ),
        "compose_shared_folder": (
            "# For what they share: `spend.path` and `cache.path` of judges, as /state/spend.db.\n"
            "- sidecars:/state\n"
        ),
        "compose_shared_volume": "\nvolumes:\n  sidecars:\n",
        "compose_third_file": "- ./collector/to-sidecars.yaml:/etc/to-sidecars.yaml:ro\n",
        "pod_third_file": f"to-sidecars.yaml: |\n{indented}",
        "shared_user": (
            "# The same for all sidecars, and so is the folder: `spend.path` and `cache.path` of judges may be there.\n"
            "User=agenteval-sidecar\n"
        ),
    }


def _values(grpc_port: int) -> dict[str, str]:
    return {
        "grpc_port": str(grpc_port),
        "http_port": str(grpc_port + 1),
        "probe_health": _HEALTH.format(port=grpc_port + 1),
    }
