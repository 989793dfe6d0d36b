"""Section search: what is tried, and what is refused with file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from nlpctl.config.load import load_recipe
from nlpctl.config.schema import Axis
from nlpctl.config.search_space import grid, grid_size, ordered, trials_wanted
from nlpctl.errors import UserError

HEAD = "task: sequence_classification\nmodel: {name_or_path: ernie-3.0-nano-zh}\ndata: {train: train.tsv}\n"


def space(load, *lines: str, more: str = ""):
    """The axes of search.space with these lines."""
    return load(f"{HEAD}search:\n{more}  space:\n" + "".join(f"    {line}\n" for line in lines)).search.space


def test_every_notation(load) -> None:
    found = space(
        load,
        "training.learning_rate: {log: [1e-5, 1e-4]}",
        "training: {num_train_epochs: {int: [2, 5]}, warmup_ratio: {uniform: [0, 0.2], step: 0.1}}",
        "data.max_seq_length: {log: [16, 64]}",
        "data.unit: [words, characters]",
        "model.freeze: [[], [embeddings], '*.bias']",
        "model.config.hidden_dropout_prob: {choices: [0.1, 2e-1]}",
        "early_stopping.patience: [null, 2]",
    )
    assert found == {
        "training.learning_rate": Axis(log=(1e-5, 1e-4)),
        "training.num_train_epochs": Axis(int=(2, 5), whole=True),
        "training.warmup_ratio": Axis(uniform=(0.0, 0.2), step=0.1),
        "data.max_seq_length": Axis(log=(16, 64), whole=True),
        "data.unit": Axis(choices=("words", "characters")),
        "model.freeze": Axis(choices=((), ("embeddings",), ("*.bias",))),
        "model.config.hidden_dropout_prob": Axis(choices=(0.1, 0.2)),
        "early_stopping.patience": Axis(choices=(None, 2)),
    }


def test_conditions_and_the_grid(load) -> None:
    found = space(
        load,
        "training.warmup_ratio: {uniform: [0, 0.2], step: 0.1, when: {training.lr_scheduler_type: linear}}",
        "training.lr_scheduler_type: [linear, constant]",
        "training.weight_decay: {choices: [0, 1], when: {training.warmup_ratio: [0.1, 0.2]}}",
        more="  sampler: grid\n",
    )
    assert [name for name, _ in ordered(found)] == [
        "training.lr_scheduler_type", "training.warmup_ratio", "training.weight_decay"
    ]  # fmt: skip
    points = list(grid(found))
    assert len(points) == 1 + 2 * 2 + 1 and points[-1] == {"training.lr_scheduler_type": "constant"}
    assert points[0] == {"training.lr_scheduler_type": "linear", "training.warmup_ratio": 0.0}
    assert [point["training.warmup_ratio"] for point in points[1:-1]] == [0.1, 0.1, 0.2, 0.2]


def test_points_are_made_when_they_are_asked_for() -> None:
    """As they are written, which sums of steps would not give."""
    wide = Axis(int=(0, 4294967295), whole=True)
    assert wide.points is not None and len(wide.points) == 2**32 and 2**32 not in wide.points
    assert grid_size({"a": wide, "b": Axis(uniform=(0.0, 1.0), step=1e-9)}, 1000) == 1000
    tenths = Axis(uniform=(0.0, 0.5), step=0.1).points
    assert list(tenths) == [0.0, 0.1, 0.2, 0.3, 0.4, 0.5] and 0.3 in tenths and 0.25 not in tenths
    assert list(Axis(int=(1, 8), step=3.0, whole=True).points) == [1, 4, 7]


def test_what_is_tried_is_written_as_recipes_have_it() -> None:
    assert Axis(choices=(None, True, ("a", "b"), "c", 1e-5)).text == 'one of null, true, ["a", "b"], c, 1e-05'


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        ("", 20),
        ("  budget: 1h\n", None),
        ("  budget: 1h\n  trials: 7\n", 7),
        ("  sampler: grid\n", 6),
        ("  sampler: grid\n  trials: 4\n", 4),
    ],
)
def test_how_many_trials(load, lines: str, wanted: int | None) -> None:
    text = f"{HEAD}search:\n{lines}  space: {{training.seed: {{int: [1, 6]}}}}\n"
    assert trials_wanted(load(text).search) == wanted


def test_paths_are_those_of_the_recipe(load, tmp_path: Path) -> None:
    found = space(load, "model.name_or_path: [./mine, ernie-3.0-nano-zh]")
    (first, second) = found["model.name_or_path"].choices
    assert Path(first).is_absolute() and first.endswith("/mine") and second == "ernie-3.0-nano-zh"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("training.learning_rat: {log: [1e-5, 1e-4]}", "did you mean training.learning_rate?"),
        ("training.learning_rate: {log: [0, 1e-4]}", "cannot begin at 0"),
        ("training.learning_rate: {log: [1e-4, 1e-5]}", "is empty"),
        ("training.learning_rate: {log: [1e-4, 1e-5, 1e-6]}", "the least and the greatest"),
        ("training.learning_rate: 1e-4", "found a single value"),
        ("training.learning_rate: [1e-4]", "1 values leave nothing to try"),
        ("training.learning_rate: [1e-4, 0.0001]", "0.0001 is there twice"),
        ("training.learning_rate: [1e-4, fast]", "'fast' is not a number"),
        ("training.learning_rate: {log: [1e-5, 1e-4], step: 1e-5}", "has no step"),
        ("training.learning_rate: {lg: [1e-5, 1e-4]}", "'lg' means nothing here"),
        ("training.warmup_ratio: {uniform: [0, 2]}", "must lie between 0 and 1"),
        ("training.warmup_ratio: {uniform: [0, 0.2], step: 1}", "does not fit the range"),
        ("training.seed: {uniform: [0, 2]}", "it takes whole numbers"),
        ("training.seed: {int: [0, 2.5]}", "'2.5' is not a whole number"),
        ("data.unit: {int: [0, 2]}", "a range is for numbers"),
        ("data.unit: [words, wrds]", "did you mean words?"),
        (f"training.seed: [{', '.join(map(str, range(1001)))}]", "1,001 values are too many"),
        ("training.output_dir: [a, b]", "every trial has a folder of its own"),
        ("data.test: [a, b]", "the test split is read for the best alone"),
        ("runtime.threads: [1, 2]", "it belongs to the machine"),
        ("training.tensor_parallel_degree: [1, 2]", "it cannot be tried"),
        ("search.trials: [1, 2]", "it says how the others are tried"),
        ("model: [a, b]", "it is a section, not a value"),
        ("model.config: [a, b]", "it is a section, not a value"),
        ("model.from_scratch.hidden_size: [16, 32]", "the recipe has no model.from_scratch"),
        ("training.seed: {choices: [1, 2], when: {training.fp16: true}}", "when: training.fp16 is not tried"),
    ],
)
def test_refused_with_its_line(load, line: str, told: str) -> None:
    with pytest.raises(UserError) as refused:
        space(load, line)
    text = str(refused.value)
    assert told in text and ":6: search.space." in text and len(refused.value.problems) == 1, text


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (["training.fp16: [true, false]",
          "training.seed: {int: [1, 2], when: {training.fp16: maybe}}"], "neither true"),
        (["training.seed: [1, 2]",
          "data.unit: {choices: [words, characters], when: {training.seed: 3}}"], "never is 3"),
        (["training.seed: {choices: [1, 2], when: {data.max_seq_length: 16}}",
          "data.max_seq_length: {choices: [16, 32], when: {training.seed: 1}}"], "depends on itself"),
        (["training.warmup_ratio: {uniform: [0, 1]}",
          "training.seed: {int: [1, 2], when: {training.warmup_ratio: 0}}"], "tried in a range"),
    ],
)  # fmt: skip
def test_conditions_that_cannot_hold(load, lines: list[str], told: str) -> None:
    with pytest.raises(UserError, match=told):
        space(load, *lines)


def test_a_grid_has_single_values(load) -> None:
    with pytest.raises(UserError, match="a grid has single values"):
        space(load, "training.learning_rate: {log: [1e-5, 1e-4]}", more="  sampler: grid\n")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("budget: soon", "is not a time"),
        ("metric: f3", "have no score named f3"),
        ("metric: eval_loss", "have no score named eval_loss"),  # would fail each trial after its training
        ("trials: 0", "must lie between 1"),
    ],
)
def test_the_other_keys(load, line: str, told: str) -> None:
    with pytest.raises(UserError, match=told):
        load(f"{HEAD}search: {{{line}}}\n")


def test_other_training_rows_need_labels(load, tmp_path: Path) -> None:
    """Else each trial would have the labels of its own rows."""
    for name in ("train.tsv", "a.tsv", "b.tsv"):
        (tmp_path / name).write_text("text\tlabel\na\tb\n")
    tried = "search: {space: {data.train: [[a.tsv], [b.tsv]]}}\n"
    with pytest.raises(UserError, match="may have other labels"):
        load(f"{HEAD}{tried}")
    labelled = HEAD.replace("{train: train.tsv}", "{train: train.tsv, labels: [b, c]}")
    assert len(load(f"{labelled}{tried}").search.space["data.train"].points) == 2


@pytest.mark.parametrize(
    ("model", "tried", "refused"),
    [
        ("{name_or_path: ernie-3.0-nano-zh}", "model.name_or_path: [ernie-3.0-nano-zh, ernie-3.0-micro-zh]", True),
        ("{from_scratch: {}}", "model.from_scratch.vocab_size: [100, 200]", True),
        ("{from_scratch: {}}", "data.train: [[a.txt], [b.txt]]", True),
        ("{from_scratch: {vocabulary: vocab.txt}}", "data.train: [[a.txt], [b.txt]]", False),
        ("{from_scratch: {}}", "model.from_scratch.hidden_size: [64, 128]", False),
    ],
)
def test_trials_that_predict_words_have_the_same_tokens(load, tmp_path, model: str, tried: str, refused: bool) -> None:
    for name in ("a.txt", "b.txt", "vocab.txt"):
        (tmp_path / name).write_text("a text\n")
    text = f"task: masked_language_model\nmodel: {model}\ndata: {{train: a.txt}}\nsearch: {{space: {{{tried}}}}}\n"
    if not refused:
        assert load(text).search.space
        return
    with pytest.raises(UserError, match="trials may have other tokens") as error:
        load(text)
    assert len(error.value.problems) == 1
    other = text.replace("masked_language_model", "sequence_classification")
    assert load(other.replace("data: {", "data: {labels: [x, y], ")).search.space


def test_a_run_of_an_earlier_version_may_say_so(tmp_path: Path) -> None:
    """It tries nothing any more, and is opened as it is."""
    (tmp_path / "run" / "model").mkdir(parents=True)
    (tmp_path / "run" / "recipe.yaml").write_text(
        "task: masked_language_model\nmodel: {name_or_path: ernie-3.0-nano-zh}\ndata: {train: a.txt}\n"
        "search: {space: {masking.probability: [0.1, 0.2], model.name_or_path: [a, b]}}\n"
    )
    assert list(load_recipe(tmp_path / "run", purpose="apply").search.space) == ["model.name_or_path"]


def test_a_reference_would_not_follow(load) -> None:
    text = f"{HEAD}training: {{run_name: '${{data.max_seq_length}}'}}\n"
    with pytest.raises(UserError, match="is used elsewhere in the recipe"):
        load(f"{text}search: {{space: {{data.max_seq_length: [32, 64]}}}}\n")
