"""`python -m nlpctl` is `nlpctl`. This is how the ranks of a training are started."""

import sys

from nlpctl.cli.app import main
from nlpctl.runtime.ranks import note_exit

if __name__ == "__main__":
    sys.exit(note_exit(main()))
