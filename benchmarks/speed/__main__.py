"""`python -m benchmarks.speed <row> <subject> <size>`: one measurement, in this process; its
numbers as JSON.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from benchmarks.harness import Size
from benchmarks.speed.rows import ROWS

if __name__ == "__main__":
    _, _row, _subject, _size = sys.argv
    _name: Any = _size
    print(json.dumps(ROWS[_row].run(_subject, Size(_name))), flush=True)
    os._exit(0)  # exit handlers and threads of the subjects are none of the measurement
