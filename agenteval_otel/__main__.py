"""``python -m agenteval_otel`` is ``agenteval-otel``."""

import sys

from agenteval_otel.cli import main

sys.exit(main())
