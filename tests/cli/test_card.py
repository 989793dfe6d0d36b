"""`nlpctl card`: what the files of a run say, in the format of the Hugging Face hub."""

from __future__ import annotations

import json
import re
import shlex
import shutil

import pytest
import yaml
from huggingface_hub import ModelCard

from nlpctl.config.load import load_recipe
from nlpctl.models.export_folder import ExportManifest, Graph, write_manifest
from nlpctl.models.folder import make_description
from nlpctl.models.model_manifest import weights_sum, write_model_sums
from nlpctl.outputs import is_signed
from nlpctl.report.language import LANGUAGES, in_language, say
from nlpctl.runs.runs import open_run, truncation_told
from nlpctl.runtime.event_log import EventLog

FIGURES = {"precision": 0.5, "recall": 0.5, "f1": 0.5, "support": 5}
REPORT = {
    "rows": 10, "accuracy": 0.75, "labels": {"good|<b>": FIGURES, "bad": {**FIGURES, "recall": 0.0}},
    "intervals": {"accuracy": [0.5, 0.9]},
}  # fmt: skip
WEAK = {"name": "12 to 40 characters", "rows": 12, "score": 0.5, "interval": [0.25, 0.7], "above": -0.25}
FAIR = {**WEAK, "name": "fair", "above_interval": [-0.5, 0.1]}
SLICES = {"split": "dev", "score": "accuracy", "by": {"length": [{**WEAK, "above_interval": [-0.4, -0.1]}, FAIR]}}
BEST = tuple(
    f"training.{each}"
    for each in ("evaluation_strategy=epoch", "save_strategy=epoch", "load_best_model_at_end=true",
                 "metric_for_best_model=accuracy")
)  # fmt: skip


@pytest.fixture
def run(made, tmp_path):
    """A run with all that a card tells of."""
    run = made("first", *BEST, f"data.dev={tmp_path}/train.tsv", dev=0.75)
    run.metrics_file.write_text(json.dumps({"dev": REPORT}))
    EventLog(run.events_file).append("save", 8, checkpoint="checkpoint-8", best="checkpoint-4")
    EventLog(run.events_file).append("out_of_memory", 5, batch_size=2)
    run.slices_file.parent.mkdir()
    run.slices_file.write_text(json.dumps(SLICES))
    run.model.mkdir()
    (run.model / "task.json").write_text("{}")
    (run.model / "labels.json").write_text('{"labels": ["good|<b>", "bad"]}')
    steps = {"examples": 100, "epochs": 2.0, "global_batch": 8}
    cut = {"rows": 288, "truncated": 2, "unread": 0.8424}
    facts = {"skipped_rows": {"train": {"total": 3}}, "parameters": {"total": 1234}, "truncated_rows": cut}
    run.update_manifest(**facts, steps=steps)
    return run


def test_an_older_run_has_no_slices(nlpctl, run):
    run.slices_file.unlink()
    ended = nlpctl("card", run.path)
    assert ended.code == 0 and ended.err.count("\n") == 1 and f"nlpctl eval {run.path} --by label" in ended.err
    assert "## Slices" not in (run.path / "README.md").read_text(encoding="utf-8")


NO_TEST = "There is no test split. The scores on dev flatter, since dev also chose the checkpoint."


def front_of(text: str) -> dict:
    return yaml.safe_load(text.split("---\n")[1])


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_card_of_a_run(nlpctl, run, language):
    ended = nlpctl("card", run.path, "--language", language, "--license", "mit", "--text-language", "zh,no")
    file = run.path / "README.md"
    assert (ended.code, ended.out, ended.err) == (0, f"{file}\n", "")
    text = file.read_text(encoding="utf-8")
    titles = ["What it does", "Labels", "Training data", "Training procedure", "Scores", "Slices below the rest"]
    titles += ["Limits", "How to run", "Reproduce and cite"]
    with in_language(language):
        titles = [say(title) for title in titles]
        kept = say("step {:,}, chosen by {} on dev", 4, "`accuracy`")
        told = (kept, say("{} to {}", "0.5000", "0.9000"), say("out of memory"), say(NO_TEST))
        told += (say("{} to {} characters", 12, 40), f"| {run.read_manifest().ended} |")
        told += (truncation_told(open_run(run.path)) or "", "84.2 %")
    assert "| fair" not in text
    for each in (*told, "1,234", "2.6.2", "train.tsv | `aa`", "| train | 100 |", "good\\|\\<b\\> (5)"):
        assert each in text, each
    assert ("is optimistic, and so is its interval" in text) == (language == "en")
    assert "/data" not in text and str(run.path) not in text  # folders of the machine are nobody's business
    assert re.findall(r"^## (.*)", text, flags=re.M) == titles


def test_the_hub_reads_it(nlpctl, run):
    assert nlpctl("card", run.path, "--license", "mit", "--text-language", "zh,no").code == 0
    text = (run.path / "README.md").read_text(encoding="utf-8")
    data = ModelCard(text).data
    assert (data.language, data.license, data.library_name) == (["zh", "no"], "mit", "paddlenlp")
    (result,) = data.eval_results
    assert (result.task_type, result.dataset_split, result.metric_value) == ("text-classification", "dev", 0.75)
    assert result.metric_args == {"confidence_level": 0.95, "confidence_interval": [0.5, 0.9]}
    again = yaml.safe_load(data.to_yaml())
    assert again["model-index"] == front_of(text)["model-index"]
    assert "datasets" not in again  # files have no name on the hub


def test_a_score_of_ones_own_has_no_interval_of_the_task(nlpctl, run):
    run.metrics_file.write_text(json.dumps({"dev": {**REPORT, "compute_metrics": {"accuracy": 1.0}}}))
    assert nlpctl("card", run.path, "--license", "mit", "--text-language", "zh").code == 0
    text = (run.path / "README.md").read_text(encoding="utf-8")
    assert "0.9000" not in text
    ((score,),) = (each["metrics"] for each in front_of(text)["model-index"][0]["results"])
    assert score["value"] == 1.0 and "args" not in score


def test_what_is_not_known_is_left_out(nlpctl, made):
    run = made("bare", dev=0.5)
    run.metrics_file.unlink()
    assert nlpctl("card", run.path).code == 0
    text = (run.path / "README.md").read_text(encoding="utf-8")
    assert front_of(text).keys() == {"library_name", "pipeline_tag", "tags"}
    assert "Nothing was scored" in text and "training texts was not recorded" in text and "None" not in text


def test_an_ensemble_names_its_members(nlpctl, made):
    run = made("joined", dev=0.5)
    run.update_manifest(members=["folds/fold-1", "/home/me/fold-2"])
    assert nlpctl("card", run.path).code == 0
    text = (run.path / "README.md").read_text(encoding="utf-8")
    assert "the answers of 2 models: folds/fold-1, fold-2" in text and "One training with one seed" not in text


def card(nlpctl, run) -> str:
    assert nlpctl("card", run.path).code == 0
    return (run.path / "README.md").read_text(encoding="utf-8")


def test_what_repeats_the_run(nlpctl, made):
    """The recipe does, but for a run that was not made by training it."""
    run, repeats = made("joined", dev=0.5), "and the seed repeats the run."
    assert repeats in card(nlpctl, run)
    given = ["/usr/bin/nlpctl", "ensemble", "folds/fold-1", "/home/my me/fold-2", "--set=data.dev=[/data/a.tsv]"]
    run.update_manifest(made_by="ensemble", command=given)
    text = card(nlpctl, run)
    command = "nlpctl ensemble folds/fold-1 fold-2 '--set=data.dev=[a.tsv]'"
    assert f"does not repeat the run, which was made by `{command}`." in text and repeats not in text
    run.update_manifest(made_by="compress", command=[])
    assert "`nlpctl compress`" in card(nlpctl, run)


def test_dev_chose_no_checkpoint_where_the_last_was_kept(nlpctl, made):
    run = made("last", dev=0.5)
    run.metrics_file.write_text(json.dumps({"dev": REPORT}))
    text = card(nlpctl, run)
    assert "flatter as far as settings were chosen by them" in text and NO_TEST not in text


def test_a_name_with_a_blank_can_be_pasted(nlpctl, made):
    text = card(nlpctl, made("my run's", dev=0.5))
    names = [shlex.split(line)[2] for line in text.splitlines() if line.startswith(("nlpctl predict", "nlpctl serve"))]
    assert names == ["my run's"] * 2 and "nlpctl.load(\"my run's\")" in text and "'my run'\"'\"'s-export'" in text


def test_paths_alone_are_cut(nlpctl, made, tmp_path):
    """Not what looks like one; and what tells two files apart stays."""
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "rows.tsv").write_text("text\tlabel\na\t/m/01\n")
    keys = ("task=multi_label_classification", "data.label_separator=/", "data.labels=[/m/01, /m/02]")
    files = (f"data.train={tmp_path}/one/rows.tsv", f"data.dev={tmp_path}/two/rows.tsv")
    run = made("paths", *keys, *files, dev=0.5)
    text = card(nlpctl, run)
    data = yaml.safe_load(text.partition("```yaml\n")[2].partition("```")[0])["data"]
    assert (data["label_separator"], data["labels"]) == ("/", ["/m/01", "/m/02"])
    assert (data["train"], data["dev"]) == (["one/rows.tsv"], ["two/rows.tsv"]) and str(tmp_path) not in text


def test_what_is_listed_in_part_says_so(nlpctl, made):
    run = made("many", dev=0.5)
    run.metrics_file.write_text(json.dumps({"dev": {**REPORT, "labels": {f"l{i}": FIGURES for i in range(103)}}}))
    assert "... and 3 more labels, in `metrics.json`." in card(nlpctl, run)
    run.slices_file.parent.mkdir(exist_ok=True)
    run.slices_file.write_text(json.dumps(SLICES))
    assert "2 slices were compared" in card(nlpctl, run)


def test_a_copied_export_knows_its_run_until_it_is_trained_again(nlpctl, run, tmp_path):
    """Whatever the times of its files, which a copy changes."""

    def trained(weights: str) -> None:
        (run.model / "model_state.pdparams").write_text(weights)
        write_model_sums(run.model)

    trained("first")
    export = tmp_path / "export"
    export.mkdir()
    recipe = load_recipe(run.recipe_file, purpose="apply")
    told = {"format": 1, "task": recipe.task, "trained": True, **make_description(recipe, ()).recipe}
    (export / "task.json").write_text(json.dumps(told))
    shutil.copy(run.model / "labels.json", export)
    graph = Graph("onnx", "fp32", ("labels.json",))
    write_manifest(
        export, ExportManifest(recipe.task, (), (), 64, (graph,), 9, str(run.model), {}, weights=weights_sum(run.model))
    )
    for weights, known in (("first", True), ("second", False)):
        trained(weights)
        copied = tmp_path / weights
        shutil.copytree(export, copied, copy_function=shutil.copyfile)
        assert nlpctl("card", copied).code == 0
        text = (copied / "README.md").read_text(encoding="utf-8")
        assert ("model-index" in front_of(text)) == known
        assert ("Known are only the files of this folder" in text) != known


def test_a_card_of_somebody_else_stays(nlpctl, run, tmp_path):
    file = run.path / "README.md"
    file.write_text("my own\n")
    ended = nlpctl("card", run.path)
    assert ended.code == 2 and f"{file}: this file was not written by nlpctl" in ended.err
    assert nlpctl("card", run.path, "--overwrite").code == 0
    assert is_signed(file) and nlpctl("card", run.path, "--language", "zh").code == 0  # its own it replaces
    file.write_text(file.read_text(encoding="utf-8").replace("accuracy", "luck"))
    assert nlpctl("card", run.path).code == 2  # changed by hand
    ended = nlpctl("card", run.path, "-o", run.path / "metrics.json", "--overwrite")
    assert ended.code == 2 and json.loads(run.metrics_file.read_text())["dev"]


def test_training_again_removes_the_card(nlpctl, run):
    assert nlpctl("card", run.path).code == 0
    again = run.read_manifest().content | {"state": "running"}
    run.begin(again, run.recipe_file.read_text(), resume=False, overwrite=True)
    assert not (run.path / "README.md").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--language", "fr"), "--language: there are no pages in 'fr'"),
        (("--license", "my own"), "--license: 'my own' is no name of a license"),
        (("--text-language", "Chinese"), "--text-language: 'Chinese' is no code of a language"),
    ],
)
def test_wrong_words_are_refused(nlpctl, run, words, told):
    ended = nlpctl("card", run.path, *words)
    assert ended.code == 2 and told in ended.err and not (run.path / "README.md").exists()


def test_only_of_a_finished_run(nlpctl, made, tmp_path):
    run = made("half")
    ended = nlpctl("card", run.path)
    assert ended.code == 2 and "a card is of a finished one" in ended.err
    ended = nlpctl("card", tmp_path / "outputs" / "hal")
    assert ended.code == 2 and "did you mean" in ended.err and "outputs/half" in ended.err
