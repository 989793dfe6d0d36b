"""What a recipe key is for, and when its value may change: the `KeyUse` that every field of schema.py has.

Ask `use_of` (keys.py) for the use of a key; lists of key names elsewhere would be out of date with the next key.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

Role = Literal[
    "network",  # the network that is trained, and where its weights start
    "weights",  # what else the result of a training depends on: its weights, its best checkpoint, its calibration
    "rows",  # which rows there are, and how files are read
    "tokens",  # how a text becomes what the network reads
    "answers",  # how outputs of the network become answers and scores
    "machine",  # where and how fast it is computed
    "output",  # where and what is written and shown, and which training is stopped as a failure
    "candidates",  # what `compress` makes of a trained model
    "command",  # how `sweep`, `compress` and the commands that apply a model search and choose
]

PathKind = Literal[
    "input",  # a text is a path, relative to the file that names it
    "output",  # a text is a path, relative to the current folder
    "text",  # as input where the value is a single text, and not where it is a list
    "name",  # as input where the text looks like a path, or there is such a folder; else the name of something
    "values",  # a mapping to numbers, distributions, and texts as input
]


@dataclass(frozen=True)
class KeyUse:
    """What one key is for.

    `may_change`: "resume": in a run that is resumed after an interruption, and in a finished one that is continued;
    "continue": in the latter alone. The weights of a resumed run must not depend on such a key.
    `per_node`: it may differ between the nodes of one training.
    `not_searchable`: why no trial of a sweep has a value of its own; None: `search.space` may name the key.
    `with_model`: trained models keep it (task.json), because their answers depend on it.
    """

    role: Role
    may_change: Literal["resume", "continue"] | None = None
    per_node: bool = False
    not_searchable: str | None = None
    with_model: bool = False

    def may_change_on(self, event: Literal["resume", "continue"]) -> bool:
        """Whether the value may be another one after `event`."""
        return self.may_change in ("resume", event)


_SAME_ROWS = "trials are compared on the same rows of dev"
_SAME_LABELS = "trials are compared by the same labels"
_SAME_SCORE = "trials are compared by the same score"
_SAME_EVALUATIONS = "trials are compared at the same evaluations"
_SAME_MASKS = "trials are compared by the same hidden words of dev, which it chooses, too"
_SAME_ANSWERS = "trials are compared by the same answers; a threshold is tuned on dev by itself (decode.tune)"
_OWN_FOLDER = "every trial has a folder of its own"
_NOT_READ = "a training does not read it"
_OF_MACHINE = "it belongs to the machine, not to the model"

NETWORK = KeyUse("network")
HEAD = replace(NETWORK, with_model=True)

WEIGHTS = KeyUse("weights")
# how long, how fast, and with which checkpoints a training learns: a continued one may learn otherwise
CONTINUABLE = replace(WEIGHTS, may_change="continue")
SCORE = replace(WEIGHTS, not_searchable=_SAME_SCORE)
EVALUATIONS = replace(WEIGHTS, not_searchable=_SAME_EVALUATIONS)
EVALUATION_TIMES = replace(EVALUATIONS, may_change="continue")
EVALUATED_ROWS = replace(WEIGHTS, not_searchable=_SAME_ROWS)
OF_COMPRESS = replace(WEIGHTS, not_searchable=_NOT_READ)  # the trainings of compress read it, `train` does not
STUDENT = replace(OF_COMPRESS, may_change="resume")

SEARCHABLE_ROWS = KeyUse("rows")
ROWS = replace(SEARCHABLE_ROWS, not_searchable=_SAME_ROWS)
TEST_ROWS = replace(SEARCHABLE_ROWS, not_searchable="the test split is read for the best alone")
LABELS = replace(SEARCHABLE_ROWS, not_searchable=_SAME_LABELS)
COLUMNS = replace(ROWS, with_model=True)
GROUPS = replace(COLUMNS, may_change="resume")  # the intervals of scores alone depend on it
LABEL_TEXT = replace(LABELS, with_model=True)

TOKENS = KeyUse("tokens", with_model=True)

ANSWERS = KeyUse("answers", with_model=True)  # and what the network learns, so it may be tried
MASKING = replace(ANSWERS, not_searchable=_SAME_MASKS)
DECODING = replace(ANSWERS, not_searchable=_SAME_ANSWERS)

MACHINE = KeyUse("machine", may_change="resume", not_searchable=_OF_MACHINE)
NODE = replace(MACHINE, per_node=True)
SPEED = KeyUse("machine", may_change="resume")
# a score may depend on it in its last digits, and the best checkpoint on the score
EVALUATION_BATCH = replace(SPEED, may_change=None)

OUTPUT = KeyUse("output", may_change="resume")
FOLDER = replace(OUTPUT, per_node=True, not_searchable=_OWN_FOLDER)
RECORD = KeyUse("output", may_change="continue")  # a run that is resumed has one record from its first step to its last

CANDIDATES = KeyUse("candidates", may_change="resume", not_searchable=_NOT_READ)
COMMAND = KeyUse("command", may_change="resume", not_searchable=_NOT_READ)
CONFIDENCE = replace(COMMAND, may_change=None)  # the scores at the end of a training depend on it
SEARCH = KeyUse("command", not_searchable="it says how the others are tried")
SEARCH_BUDGET = replace(SEARCH, may_change="resume")  # a sweep that goes on may try more

# The task, and keys that other versions of nlpctl had: all may depend on them.
UNKNOWN = SEARCHABLE_ROWS
