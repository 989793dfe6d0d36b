"""For `scripts/net.py errors`: every Python process with this folder on PYTHONPATH writes down its UserErrors.

Python imports a module of this name when it starts, whoever starts it. Each error is a line of JSON at the end of
$NLPCTL_NET_ERRORS; a line is written at once, so that processes do not mix theirs.
"""

import contextlib
import json
import os

FILE = os.environ.get("NLPCTL_NET_ERRORS")


def watch(kind: type[Exception], file: str) -> None:
    """Have each error of `kind`, and of kinds derived from it, written to the end of `file`."""
    begin = kind.__init__

    def write(self, *words, **named):
        begin(self, *words, **named)
        lines = [[kind.__name__, each.message, each.where, each.hint] for each in self.problems]
        with contextlib.suppress(Exception):  # of a test that allows no more files, or takes rights away
            handle = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
            try:
                os.write(handle, "".join(f"{json.dumps(line, default=str)}\n" for line in lines).encode())
            finally:
                os.close(handle)

    kind.__init__ = write


if FILE:
    with contextlib.suppress(ImportError):  # another program's Python
        from nlpctl import RunFailed, UserError

        for each in (UserError, RunFailed):
            watch(each, FILE)
