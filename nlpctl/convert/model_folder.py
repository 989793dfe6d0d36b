"""Writes the converted network as a model folder that all other commands accept."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from nlpctl.config.load import recipe_of_values
from nlpctl.config.tasks import known_tasks
from nlpctl.convert.conversion import Conversion
from nlpctl.convert.report import ConversionReport, markdown
from nlpctl.files import staged_dir, write_json_atomic, write_text_atomic, writing
from nlpctl.layout import CONVERSION
from nlpctl.models.crf import CRF_SUFFIX
from nlpctl.models.folder import ModelDescription, make_description, save_model_folder
from nlpctl.models.model_manifest import write_model_sums
from nlpctl.models.network import max_positions

REPORT_JSON, REPORT_PAGE = CONVERSION
_MAX_SEQ_LENGTH = 128


def write_folder(output: Path, conversion: Conversion, report: ConversionReport) -> ModelDescription | None:
    """Write the folder, whole or not at all. Returns its description; None: it is a plain folder of PaddleNLP."""
    description = description_of(conversion)
    tokenizer = conversion.target.tokenizer
    with writing(output, "name another place: @[output]"), staged_dir(output) as folder:
        if description is not None:
            save_model_folder(folder, conversion.network, tokenizer, description)
        else:
            conversion.network.save_pretrained(str(folder))
            if tokenizer is not None:
                tokenizer.save_pretrained(str(folder))
            write_model_sums(folder)
        write_json_atomic(folder / REPORT_JSON, report.to_json())
        write_text_atomic(folder / REPORT_PAGE, markdown(report))
    return description


def description_of(conversion: Conversion) -> ModelDescription | None:
    """The description (labels.json, task.json) of the result; None if no known task fits, or its labels have no names.

    A head that is new, even in part, was not trained.
    """
    target = conversion.target
    head = {each.name for each in conversion.fresh if not each.name.startswith(f"{target.family.prefix}.")}
    if target.description is not None:
        return dataclasses.replace(target.description, trained=target.description.trained and not head)
    task = next((task for task in known_tasks() if task.network_class == target.head.name), None)
    if task is None or target.tokenizer is None:
        return None
    # As PaddleNLP's own folders, which count their labels: whoever uses it may name them (--labels), and LABEL_0 is
    # no tag. Such a folder cannot tell that a head is untrained.
    if target.head.labelled and not target.labels_known and (task.tags or not head):
        return None
    is_crf = type(conversion.network).__name__.endswith(CRF_SUFFIX)
    # A static program does not say how its texts were cut; 128 is a safe length for most encoders.
    length = min(_MAX_SEQ_LENGTH, max_positions(conversion.network) or _MAX_SEQ_LENGTH)
    values: dict[str, Any] = {"task": task.name, "data": {"max_seq_length": length}}
    if is_crf:
        values["model"] = {"head": "crf"}
    return dataclasses.replace(make_description(recipe_of_values(values), target.labels), trained=not head)
