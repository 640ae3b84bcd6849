"""`python -m sampler`: the same as the console script `attention-posterior`."""

import sys

from sampler.cli import main

if __name__ == "__main__":
    sys.exit(main())
