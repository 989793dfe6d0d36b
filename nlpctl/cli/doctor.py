"""`nlpctl doctor`."""

from __future__ import annotations

import dataclasses

from nlpctl import console
from nlpctl.cli.envelope import Json, give
from nlpctl.errors import EXIT_FAILED, EXIT_OK
from nlpctl.names import counted
from nlpctl.runtime.doctor import run_checks


def doctor(json: Json = False) -> int:
    """Check this machine: versions, device, threads, disk. Each line is ok, warning or failure, with the remedy.

    Exit code 1 when anything fails.

    Examples:

      nlpctl doctor

      nlpctl doctor --json
    """
    checks = []
    for check in run_checks():
        checks.append(check)
        if not json:
            console.result(f"{check.status:7}  {check.name}: {check.detail}")
            if check.remedy:
                console.result(f"         -> {check.remedy}")
    counts = {status: sum(check.status == status for check in checks) for status in ("ok", "warning", "failure")}
    if json:
        give({"counts": counts, "checks": [dataclasses.asdict(check) for check in checks]})
    else:
        bad = f"{counted(counts['warning'], 'warnings')}, {counted(counts['failure'], 'failures')}"
        console.note(f"{counts['ok']} ok, {bad}")
    return EXIT_FAILED if counts["failure"] else EXIT_OK
