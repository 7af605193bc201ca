"""The child process of the ``cpu`` lane: evaluators that compute run where they cannot hold the host's interpreter.

Three processes take part. In the host, one daemon thread (`client`) sends inputs and reads answers. It starts the
`template`: a fresh, single-threaded Python at the lowest priority that imports the package and the evaluators once and
forks a `worker` from itself, so that one that was killed or crashed is back within milliseconds. The template also
watches over the worker, so that neither its time limits nor its deaths cost the host anything. Everything between them
is JSON in frames; nothing is pickled. When the host ends, however it ends, the others end by themselves.
"""

from agenteval_otel.runner.child.client import Child
from agenteval_otel.runner.child.jobs import Job
from agenteval_otel.runner.child.process import Unavailable
from agenteval_otel.runner.child.recipes import NotPortable

__all__ = ["Child", "Job", "NotPortable", "Unavailable"]
