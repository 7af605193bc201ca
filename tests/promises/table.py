"""The promises that the tests of this folder hold, in rank order: in each group the worst to break
stands first.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple


class Promise(NamedTuple):
    """One promise: what holds, what is done to break it, and the figure at which its test passes."""

    code: str
    says: str
    fault: str
    passes: str


GROUPS = {
    "A": "The host is not hurt",
    "B": "Privacy, security, money",
    "C": "No score is lost in silence, doubled or invented",
    "D": "Operations",
}
"""What stands at stake, by the first letter of a code."""

PROMISES = (
    Promise(
        "A1",
        "A monitored call gives the same object or raises the same exception as the bare one.",
        "every seam of ours raises, `RecursionError` and `MemoryError` included; the handler raises anything at all",
        "0 differences",
    ),
    Promise(
        "A2",
        "Evaluators do not hold up the host's event loop.",
        "four evaluators that compute without a pause, at full load",
        "lag p99 <= idle + 5 ms, max <= 50 ms or idle, p50 <= idle + 0.1 ms",
    ),
    Promise(
        "A3",
        "No regular expression freezes the host.",
        "patterns that backtrack without end, on texts of 30 to 1,000,000 characters",
        "stall of another thread <= 10 ms; a score or `timeout` within 200 ms",
    ),
    Promise(
        "A4",
        "What a call pays is small and does not grow with its payload.",
        "10 MB answers, a full queue, a hung exporter, a hung judge",
        "sampled p50 <= 15 us, p99 <= 50 us (10 MB: 200 us); not sampled p50 <= 3 us",
    ),
    Promise(
        "A5",
        "Memory is bounded by items and by bytes.",
        "the judge stalls while calls answer 1 MB each",
        "growth <= 64 MB of queue + 32 MB, every drop counted",
    ),
    Promise(
        "A6",
        "The process ends in time and with its own exit code.",
        "hung judges, half-open receivers, a full disk, 2,048 queued; five ways to end",
        "exit <= 2.5 s, code and output the program's own",
    ),
    Promise(
        "A7",
        "Forks are safe.",
        "forks while workers hold every lock; multiprocessing; gunicorn with preload",
        "0 hung, nothing scored twice, the child's calls scored",
    ),
    Promise(
        "A8",
        "A call may come from anywhere, in the middle of our own code too.",
        "calls from signal handlers, finalizers, logging handlers and evaluators",
        "no deadlock, every call counted",
    ),
    Promise(
        "A9",
        "Our log lines neither recurse, block nor flood.",
        "the root logger exports through a receiver that is down, while we warn",
        "<= 1 line per cause and minute, 0 recursions",
    ),
    Promise(
        "A10",
        "Event loops may end, be closed, be several, be nested.",
        "loops that end or are closed early, cancelled tasks, abandoned streams",
        "0 exceptions and warnings, everything delivered at flush",
    ),
    Promise(
        "A11",
        "No context of a request leaks.",
        "requests with context variables, baggage and spans of their own",
        "every value collected after flush, 0 spans under a foreign trace",
    ),
    Promise(
        "A12",
        "Threads, child processes, sockets and files stay constant.",
        "1,000 monitored functions, 100 pipelines made and ended, 100 new configurations and 100 reloads",
        "threads <= configured + 2, 0 descriptors more, 0 processes more",
    ),
    Promise(
        "A13",
        "Import is cheap, silent and changes nothing.",
        "state of the process compared before and after; system calls watched",
        "0 changes, 0 connections",
    ),
    Promise(
        "A14",
        "Odd runtimes degrade and never break.",
        "gevent and eventlet, no threads, no processes, sub-interpreters, a wrong `sys.executable`, no `/dev/shm`",
        "the call is right, <= 1 warning, every call counted",
    ),
    Promise(
        "A15",
        "The kill switch costs nothing and works at once.",
        "the variable, the call and the file, toggled under load",
        "the next call follows, 0 exceptions; off <= 0.5 us",
    ),
    Promise(
        "A16",
        "A bad configuration fails at start, a bad reload keeps the old one.",
        "mutated configurations",
        "all fail at start and name the key, 0 raise later",
    ),
    Promise(
        "A17",
        "Nothing grows under a long load.",
        "ten minutes of mixed sizes, one call in twenty with a fault",
        "memory <= 0.5 MB/min at the upper bound, threads and descriptors constant, accounting exact",
    ),
    Promise(
        "B1",
        "Content does not leave unless it is asked for.",
        "a canary in every place that holds text",
        "0 found at the defaults; each opt-in releases its own",
    ),
    Promise(
        "B2",
        "Our own secrets do not appear.",
        "keys in files, variables, headers and addresses; receivers that echo them",
        "0 found",
    ),
    Promise(
        "B3",
        "Redaction finds, is linear, holds up no answer and fails closed.",
        "5,000 synthetic secrets, 2,000 in other writings, 10 MB of text, hostile texts, a redactor that raises",
        "fixed formats 100 %, mail and telephone >= 98 %; every answer evaluated; an error drops the field",
    ),
    Promise(
        "B4",
        "An evaluation is never evaluated.",
        "evaluators that call monitored and instrumented functions",
        "no second generation",
    ),
    Promise(
        "B5",
        "What judges may cost has a hard ceiling.",
        "64 calls at once, above their estimate; no price; clock steps; restarts, kills, two processes; a broken file",
        "overspend <= calls in flight x most expensive call",
    ),
    Promise(
        "B6",
        "A provider in trouble is not stormed.",
        "every request meets 429, 529, 503, any `Retry-After`, resets, time-outs; the SDK would retry too",
        "requests <= 1.1 x calls (2 free); circuit open within 20 calls, one probe; never before `Retry-After`",
    ),
    Promise(
        "B7",
        "A request that means to fill the sidecar's memory is refused.",
        "gzip of 1 GB, in gzip, a million spans, attributes, depth 100,000, wrong lengths, endless chunks; HTTP, gRPC",
        "refused; memory <= six times max_request_bytes (96 MB); the next legal request served at once",
    ),
    Promise(
        "B8",
        "Slow clients do not starve others.",
        "500 half-open connections, 200 trickling heads, 200 trickling bodies, replies not read; HTTP and gRPC",
        "legal p99 <= 100 ms; slow ones closed <= 10 s",
    ),
    Promise(
        "B9",
        "The sidecar is closed by default.",
        "no settings, other addresses, wrong tokens, no TLS, foreign certificates, taken ports, pages in a browser",
        "binds 127.0.0.1; refuses to start open; 401 before the body is read; no token: 0 of a page or foreign name",
    ),
    Promise(
        "B10",
        "No data is run as code.",
        "fuzzed inputs, tasks, files and settings, under an audit hook",
        "0 events",
    ),
    Promise(
        "B11",
        "Bombs in settings files are refused.",
        "alias bombs, deep nesting, repeated keys, 10 MB",
        "refused <= 50 ms, <= 20 MB more",
    ),
    Promise(
        "B12",
        "Redirects carry no keys, and no text becomes a path.",
        "redirects to other servers, files and metadata addresses; hostile names, links, devices",
        "0 redirects followed, 0 files outside; files 0600, folders 0700",
    ),
    Promise(
        "B13",
        "What is judged cannot leave its place in the judge's prompt.",
        "660 payloads in every field, for every rubric and for templates",
        "0 breakouts, the mark in no payload",
    ),
    Promise(
        "B14",
        "Stored text is text in the pages and tables of `agenteval-otel ui`, closed to all others.",
        "HTML, scripts, ANSI, changes of direction, formulas and 10 MB in every field; other sites, hosts and cookies",
        "0 tags or scripts of stored text, pages <= 300 KB; 0 pages without the token",
    ),
    Promise(
        "B15",
        "No outsider chooses what is evaluated, or what weight it has.",
        "one request with any trace id and trace state at FastAPI, our middleware and the sidecar; forwarded answers",
        "weight of one answer; chosen ids at the rate +- 5 sigma; the alarm comes as without it",
    ),
    Promise(
        "B16",
        "Made-up names neither fill the memory nor take the place of the operator's names.",
        "100,000 made-up agents, services, models and criteria of feedback; then what the settings name",
        "memory <= 10 MB more, 20 of 20 evaluated, in every metric; series bounded, every count kept",
    ),
    Promise(
        "B17",
        "What waits is counted as Python keeps it, and a request that kills the sidecar ends its loop.",
        "model calls that wait, in ASCII, Latin-1, beyond it, with one emoji, of 900 small attributes; SIGKILL and "
        "restart; SIGKILL while a request is read again; spans of 1 MB in the host",
        "shipped unit (512 MB) <= 400 MB; kept in a file at the third start; host <= 32 MB + 32 MB",
    ),
    Promise(
        "B18",
        "No header and no attribute that a client chooses says that its answer is an evaluation, or monitored already.",
        "trace states, baggage as attributes, other keys' marks, at the sidecar and the span processor",
        "0 answers left out; evaluations of processes with the same key known",
    ),
    Promise(
        "B19",
        "Nothing of the current folder is run, but what settings and arguments name.",
        "a folder with a module of each name that a command looks for, and entry points; every command",
        "0 run; the named module, and what it imports beside it, are found",
    ),
    Promise(
        "C1",
        "Accepted = delivered + dropped by reason + failed + pending.",
        "every fault at once",
        "exact at rest",
    ),
    Promise(
        "C2",
        "A failure is never a score.",
        "evaluators that raise, hang, give wrong types and NaN; every failure of a provider; fuzzed answers of judges",
        "0 results with both, 0 defaulted scores",
    ),
    Promise(
        "C3",
        "An evaluator that hangs or crashes silences neither others nor itself.",
        "hangs, `SystemExit`, crashes of the child process; judges that never answer",
        "all healthy results delivered, the child back <= 1 s",
    ),
    Promise(
        "C4",
        "One poison item costs one item.",
        "surrogates, NUL, cycles, raising methods and 10 MB in every field of one in a batch of 512",
        "511 delivered, one sanitised or counted",
    ),
    Promise(
        "C5",
        "No saved JSON line is lost when a process is killed.",
        "random `SIGKILL`s of four writers of one file, lines of 200 bytes to 200 KB, with and without rotation",
        "0 saved lines lost, <= 1 cut-off line per kill, which costs no other",
    ),
    Promise(
        "C6",
        "No saved row is lost when a process is killed.",
        "random `SIGKILL`s of four processes that write one SQLite file",
        "0 saved results lost, 0 stored in part, integrity check ok, one writer at a time",
    ),
    Promise(
        "C7",
        "A storage fault stays in the storage.",
        "a full disk, I/O errors, files too large, read-only and removed folders; databases locked, stopped, hanging",
        "host unaffected, counted, recovered <= 5 s after repair, no torn line inside",
    ),
    Promise(
        "C10",
        "The sidecar acknowledges honestly.",
        "a full queue, a full disk, kills between acknowledgement and score, damaged and cut-off files, restart loops",
        "every 200 evaluated; full: 429 with `Retry-After`, `RESOURCE_EXHAUSTED` with `RetryInfo`",
    ),
    Promise(
        "C11",
        "An outage of the receiver is survived.",
        "refused, reset, half-open, 429, 503, 413, 400, and then well again",
        "memory bounded, resumes <= 30 s, large batches split, refusals not repeated",
    ),
    Promise(
        "C12",
        "Steps of the wall clock do not matter.",
        "the clock steps by a day and by a second and slews; the process is stopped and goes on",
        "0 negative durations, 0 timeouts after the thaw, every id its own",
    ),
    Promise(
        "C13",
        "Flush tells the truth.",
        "a hang at each stage",
        "back <= timeout + 0.1 s; `True` only when all of it was saved",
    ),
    Promise(
        "C14",
        "Sampling is deterministic and unbiased.",
        "same ids and key across processes, forks and restarts; the host seeds its random numbers",
        "the same everywhere, within 3 sigma, the host's state untouched",
    ),
    Promise(
        "C15",
        "What is judged is what was returned.",
        "answers changed after return, streams in pieces, calls again",
        "all equal, or marked",
    ),
    Promise(
        "C16",
        "Any input is accepted.",
        "any JSON, bytes, objects that raise, cycles, depth, 10 MB, generators",
        "0 exceptions, no stream used up",
    ),
    Promise(
        "C17",
        "Every agent span is written exactly once, with its true times, whatever becomes of the evaluation.",
        "queue full, shedding, hangs, kills, forks in the handler, late providers, foreign processors, every exit",
        "0 lost uncounted, 0 twice, 0 children without their parent, none of the host's own lost",
    ),
    Promise(
        "C18",
        "A cut-off, hostile or broken journal invents nothing and forgets nothing of others.",
        "writes cut off inside requests that hold whole records, flipped bytes, holes, the folder removed",
        "0 forged answers, 0 forgotten, 0 replies of 500; `/readyz` and gRPC's health say why not",
    ),
    Promise(
        "C19",
        "A span that comes again is not scored again; what was removed is forgotten.",
        "requests sent again after 12,000 traces, and after ten minutes; spans removed, erased, and sent again",
        "0 scored again in ten minutes, at 1,500 traces/s in five; <= 32 MB; removed: scored whole; erased: not at all",
    ),
    Promise(
        "C20",
        "What was taken is delivered whichever way a pool or a server ends its children.",
        "pools of billiard (Celery's) that recycle a child after each task, close, are stopped; a frozen function",
        "all delivered, or named with the cure",
    ),
    Promise(
        "C21",
        "Scores of two answers never replace each other; those of one answer given again do.",
        "answers that share a span; results sent, evaluated and stored again; late truth, off-peak, the sidecar",
        "one score for each answer, evaluator, version and criterion, in every storage",
    ),
    Promise(
        "D1",
        "SIGTERM ends the server's way, and what was taken is delivered or counted, by the defaults.",
        "SIGTERM to gunicorn, uvicorn, plain Python and forked children under load; twice; on other threads",
        "drained <= 2 s or counted; the host's handler runs; the process ends of the signal",
    ),
    Promise(
        "D2",
        "After `flush()` nothing is left for a frozen process to lose.",
        "the process is stopped right after it returned",
        "0 pending where flush gave `True`, all of it at the receiver",
    ),
    Promise(
        "D3",
        "The sidecar shows its own state with few series.",
        "metrics scraped during faults and load",
        "present; <= 47 series per criterion of an agent with three models",
    ),
    Promise(
        "D4",
        "Overload lowers sampling before calls are lost; a burst that drains in seconds, or a slow start, does not.",
        "twice the load that can be taken; 5,000 and 20,000 calls at once; a late event loop at the first calls",
        "sampling lowered and reported; drops <= 5 % after 10 s; recovered <= 30 s; of a burst and a start all kept",
    ),
    Promise(
        "D6",
        "A sidecar that evaluates nothing says why, and an instrumentor without settings does nothing.",
        "answers evaluated elsewhere, without text, of unknown libraries; no settings, variable or `configure`",
        "reason and cure in a log line and in `/healthz` within 10 s, once; 0 evaluations, 1 line",
    ),
)
"""Every promise with a test in this folder."""

NOT_BUILT = {
    "workers behind a broker": ("C8", "C9", "D5"),
}
"""Promises of parts that there are none of yet: nothing is claimed."""

BY_CODE = {promise.code: promise for promise in PROMISES}
_FILE = re.compile(r"test_([a-d]\d+)_\w+\.py")


def code_of(file: Path) -> str | None:
    """The promise that a test file is about, by its name; None for another file."""
    named = _FILE.fullmatch(file.name)
    return named[1].upper() if named else None
