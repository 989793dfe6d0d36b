"""The report of scripts/check_gpu.py: what machine it was, and what every step found."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench_common import conditions

from nlpctl.files import write_json_atomic, write_text_atomic
from nlpctl.runtime.cuda import cuda_libraries, installed_code
from nlpctl.runtime.device import ask_driver, usable_gpu
from nlpctl.runtime.versions import engine_versions, installed_versions


@dataclass
class Outcome:
    """A step: "passed", "failed" or "left out", what it found, and why it did not pass."""

    name: str
    status: str
    seconds: float
    found: dict[str, Any] = field(default_factory=dict)
    reason: str = ""


def machine(on_card: bool) -> dict[str, Any]:
    """Cards, driver and libraries."""
    driver, code = ask_driver(os.environ), installed_code()
    report = usable_gpu()
    libraries = cuda_libraries({**os.environ, **report.variables}) if on_card else None
    return {
        "cards": [
            {"name": name, "capability": card} for name, card in zip(driver.names, driver.capabilities, strict=True)
        ],
        "driver_cuda": driver.cuda_version,
        "no_gpu_because": report.reason,
        "paddle_serves": None if code is None else asdict(code),
        "libraries": {} if libraries is None else {name: asdict(each) for name, each in libraries.loaded.items()},
        **conditions(),
        "versions": {**installed_versions(), **engine_versions()},
    }


def write(folder: Path, device: str, facts: dict[str, Any], outcomes: Sequence[Outcome]) -> None:
    """report.json and report.md."""
    report = {"device": device, "machine": facts, "steps": [asdict(each) for each in outcomes]}
    write_json_atomic(folder / "report.json", report)
    write_text_atomic(folder / "report.md", page(report))


def page(report: dict[str, Any]) -> str:
    facts = report["machine"]
    cards = ", ".join(f"{card['name']} ({'.'.join(map(str, card['capability']))})" for card in facts["cards"])
    lines = [
        f"# nlpctl on {cards or 'a machine without a card'}, --device {report['device']}",
        "",
        f"{facts['date']}, {facts['processor']}, {facts['cores']} cores, "
        f"driver for CUDA {facts['driver_cuda'] or '-'}, commit {facts['commit']}. {facts['no_gpu_because']}",
        "",
        ", ".join(f"{package} {version}" for package, version in facts["versions"].items()),
        "",
        "| step | result | seconds | found |",
        "|---|---|---:|---|",
    ]
    for step in report["steps"]:
        told = step["reason"].partition("\n")[0] or _short(step["found"])
        lines.append(f"| {step['name']} | {step['status']} | {step['seconds']:.0f} | {told.replace('|', '/')} |")
    for step in report["steps"]:
        if step["status"] == "failed":
            lines += ["", f"## {step['name']} failed", "", "```text", step["reason"], "```"]
        if "table" in step["found"]:
            lines += ["", f"## {step['name']}", "", step["found"]["table"].replace("\n#", "\n##")]
    return "\n".join(lines) + "\n"


def _short(found: dict[str, Any], most: int = 300) -> str:
    text = json.dumps({key: value for key, value in found.items() if key not in ("table", "bench")}, ensure_ascii=False)
    return text if len(text) <= most else f"{text[:most]} ... (report.json)"
