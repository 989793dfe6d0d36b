"""`python -m nlpctl` is `nlpctl`."""

import sys

from nlpctl.cli.app import main

if __name__ == "__main__":
    sys.exit(main())
