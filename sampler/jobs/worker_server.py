"""What the process imports and sets that workers are copies of; nothing else may import this.

No array is computed here: JAX has threads from then on, which no copy would have.
"""

import signal

from sampler.jobs.executors import prepare_process
from sampler.jobs.interruption import SIGNALS

# Where all processes of a command are asked to stop, workers save before they leave: until then
# this one says that they are alive.
for number in SIGNALS:
    signal.signal(number, signal.SIG_IGN)
prepare_process()

import sampler.jobs.pages  # noqa: E402
import sampler.jobs.stages  # noqa: E402, F401  after the environment is set, which JAX reads
