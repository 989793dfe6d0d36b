"""`nlpctl recipe ...`."""

from __future__ import annotations

import json
from pathlib import Path

from nlpctl.config.library import shipped_recipes
from nlpctl.config.load import load_recipe


def test_ls(nlpctl) -> None:
    ended = nlpctl("recipe", "ls")
    assert ended.code == 0
    for each in shipped_recipes():
        assert each.name in ended.out and each.title in ended.out
    listed = json.loads(nlpctl("recipe", "ls", "--json").out)["result"]
    assert [each["name"] for each in listed] == [each.name for each in shipped_recipes()]


def test_show_prints_what_can_be_loaded_again(nlpctl, recipe: Path, tmp_path: Path) -> None:
    ended = nlpctl("recipe", "show", recipe, "--learning_rate", "1/8")
    assert ended.code == 0 and "learning_rate: 0.125" in ended.out and "warmup_ratio" not in ended.out
    (tmp_path / "again.yaml").write_text(ended.out, encoding="utf-8")
    assert load_recipe(tmp_path / "again.yaml").training.learning_rate == 0.125
    assert "warmup_ratio: 0.0" in nlpctl("recipe", "show", recipe, "--all").out


def test_show_origins(nlpctl, recipe: Path, tmp_path: Path) -> None:
    out = nlpctl("recipe", "show", recipe, "--origins", "--learning-rate=1", "--set", "model.config.a=1").out
    lines = {line.split(":")[0].strip(): line.rpartition("# ")[2] for line in out.splitlines() if "#" in line}
    assert lines["seed"].endswith("recipe.yaml:6")
    assert lines["learning_rate"] == "--learning-rate"
    assert lines["a"] == "--set model.config.a"
    (tmp_path / "again.yaml").write_text(out, encoding="utf-8")
    assert load_recipe(tmp_path / "again.yaml").training.seed == 3
    values = json.loads(nlpctl("recipe", "show", recipe, "--origins", "--json").out)["result"]
    assert values["recipe"]["training"]["seed"] == 3
    assert values["origins"]["training.seed"].endswith("recipe.yaml:6")
    every = nlpctl("recipe", "show", recipe, "--origins", "--all").out
    assert "# default" in every and every.count("#") > 100


def test_origins_of_a_search(nlpctl, recipe: Path, tmp_path: Path) -> None:
    """Whose ranges are values of one key."""
    text = recipe.read_text() + "search: {space: {training.learning_rate: {log: [1e-5, 1e-4]}}}\n"
    (tmp_path / "swept.yaml").write_text(text, encoding="utf-8")
    out = nlpctl("recipe", "show", tmp_path / "swept.yaml", "--origins").out
    (tmp_path / "again.yaml").write_text(out, encoding="utf-8")
    assert load_recipe(tmp_path / "again.yaml").search == load_recipe(tmp_path / "swept.yaml").search
    found = json.loads(nlpctl("recipe", "show", tmp_path / "swept.yaml", "--origins", "--json").out)["result"]
    assert found["origins"]["search.space.training.learning_rate"].endswith("swept.yaml:8"), found["origins"]


def test_copy(nlpctl, tmp_path: Path) -> None:
    ended = nlpctl("recipe", "copy", "chnsenticorp", tmp_path / "mine")
    assert ended.code == 0 and ended.out.strip().endswith("mine/chnsenticorp.yaml")
    assert "extends: nlpctl:configs/base.yaml" in (tmp_path / "mine" / "chnsenticorp.yaml").read_text(encoding="utf-8")
    again = nlpctl("recipe", "copy", "chnsenticorp", tmp_path / "mine")
    assert again.code == 2 and "this file exists" in again.err
    assert nlpctl("recipe", "copy", "chnsenticorp", tmp_path / "mine", "--overwrite").code == 0


def test_validate(nlpctl, recipe: Path, tmp_path: Path) -> None:
    assert nlpctl("recipe", "validate", recipe, "chnsenticorp") == (0, f"ok {recipe}\nok chnsenticorp\n", "")
    bad = tmp_path / "bad.yaml"
    bad.write_text(recipe.read_text() + "  sede: 1\n  fp16: perhaps\n")
    ended = nlpctl("recipe", "validate", bad, recipe, tmp_path / "gone.yaml")
    assert ended.code == 2 and ended.out == f"ok {recipe}\n"
    assert (
        "bad.yaml:8: unknown key training.sede" in ended.err and "bad.yaml:9" in ended.err and "gone.yaml" in ended.err
    )


def test_validate_with_flags(nlpctl, recipe: Path) -> None:
    ended = nlpctl("recipe", "validate", recipe, "--fp16", "--device", "cpu")
    assert ended.code == 2 and "fp16 needs a GPU" in ended.err
    assert "use --bf16 in its place (where the processor has AVX512-BF16 or AMX)" in " ".join(ended.err.split())


def test_validate_as_json(nlpctl, recipe: Path, tmp_path: Path) -> None:
    ended = nlpctl("recipe", "validate", "--json", recipe, tmp_path / "gone.yaml")
    printed = json.loads(ended.out)
    good, bad = printed["result"]
    assert not printed["ok"] and printed["error"]["problems"] == bad["problems"]
    assert ended.code == 2 and good["ok"] and not bad["ok"]
    assert set(bad["problems"][0]) == {"message", "where", "hint"}
    assert nlpctl("recipe", "validate", "--json", recipe).code == 0


def test_schema(nlpctl) -> None:
    schema = json.loads(nlpctl("recipe", "schema").out)
    assert schema["properties"]["training"]["properties"]["learning_rate"]["default"] == 5e-5


def test_flags(nlpctl) -> None:
    out = nlpctl("recipe", "flags").out
    assert all(flag in out for flag in ("--learning_rate", "--width_mult_list", "--device ", "--nproc"))
    assert "--no_cuda" not in out  # refused in favour of --device
    assert nlpctl("recipe", "flags", "learning-rate").out.count("\n") == 3
    listed = json.loads(nlpctl("recipe", "flags", "--json", "weight_decay").out)["result"]
    assert listed == [
        {
            "flag": "--weight_decay",
            "key": "training.weight_decay",
            "type": "number",
            "default": 0.0,
            "help": listed[0]["help"],
            "refused": None,
        }
    ]
    line = nlpctl("recipe", "flags", "pipeline_parallel_degree").out.splitlines()[-1]
    assert line.startswith("--pipeline_parallel_degree") and "refused: every process holds the whole network" in line
    ended = nlpctl("recipe", "flags", "learnign_rate")
    assert ended.code == 2 and "--learning_rate" in ended.err


def test_validate_reads_the_columns_of_the_files(nlpctl, recipe: Path, tmp_path: Path) -> None:
    rows = [{"review": f"the {i}th was the best of all", "label": i % 2} for i in range(20)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    ended = nlpctl("recipe", "validate", recipe, "--set", f"data.train={tmp_path / 'rows.jsonl'}")
    assert ended.code == 2 and ended.err.count("error:") == 1
    assert "no column 'text'" in ended.err and "set data.columns.text: review" in ended.err


def test_validate_an_encoder_without_data(nlpctl, tmp_path: Path) -> None:
    path = tmp_path / "encoder.yaml"
    path.write_text("task: semantic_indexing\nmodel: {name_or_path: ernie-3.0-nano-zh}\n")
    assert nlpctl("recipe", "validate", path) == (0, f"ok {path}\n", "")
    path.write_text("task: sequence_classification\nmodel: {name_or_path: ernie-3.0-nano-zh}\n")
    ended = nlpctl("recipe", "validate", path)
    assert ended.code == 2 and "nothing to train from" in ended.err
    path.write_text("task: semantic_indexing\nmodel: {name_or_path: a, colour: b}\ntraining: {sede: 1}\n")
    ended = nlpctl("recipe", "validate", path)
    assert "model.colour" in ended.err and "training.sede" in ended.err and "nothing to train from" in ended.err
