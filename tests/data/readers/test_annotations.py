"""Label Studio's and doccano's files: read into labels and tags, written, and read again."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import pandas
import pytest

from nlpctl.config.load import load_recipe
from nlpctl.data.open_split import open_split
from nlpctl.data.predict_input import open_inputs
from nlpctl.data.readers import doccano, label_studio, spans
from nlpctl.data.readers.annotated import Mark, from_utf16, tags_from_marks, to_utf16
from nlpctl.data.readers.row import BadRow
from nlpctl.data.rows.tag_scheme import detect_scheme
from nlpctl.data.rows.task_rows import task_rows
from nlpctl.data.rows.text_rows import TextExample
from nlpctl.data.text.word_spans import character_spans, word_spans
from nlpctl.data.training_data import read_training_data, text_key
from nlpctl.datatools.convert import convert
from nlpctl.datatools.next import ChosenRow, known_texts, without_reason
from nlpctl.errors import UserError

EMOJI = "💩👍 他住在北京。"  # two characters of two UTF-16 units
ANNOTATION = {"completed_by": 1, "was_cancelled": False, "ground_truth": False, "lead_time": 8.4, "result_count": 0}


def recipe_of(folder: Path, task: str, file: str, **data: Any) -> Any:
    content = {"task": task, "model": {"from_scratch": {}}, "data": {"train": file, **data}}
    (folder / "recipe.yaml").write_text(json.dumps(content))
    return load_recipe(folder / "recipe.yaml")


def rows_of(recipe: Any) -> list[Any]:
    return list(open_split(task_rows(recipe.task, recipe.data), "train"))


def choice(*labels: str) -> dict[str, Any]:
    value = {"choices": list(labels)}
    return {"id": "a1", "type": "choices", "origin": "manual", "from_name": "x", "to_name": "y", "value": value}


def span(start: int, end: int, text: str | None, label: str) -> dict[str, Any]:
    said = {} if text is None else {"text": text}
    value = {"start": start, "end": end, "labels": [label], **said}
    return {"id": "b2", "type": "labels", "from_name": "x", "to_name": "y", "origin": "manual", "value": value}


def studio(*tasks: tuple[Any, list[Any]]) -> str:
    """An export: `tasks` are a text, or the data, and the results of each annotator."""
    made = []
    for number, (data, answers) in enumerate(tasks):
        data = {"text": data} if isinstance(data, str) else data
        given = [{"id": i, **ANNOTATION, **answer} for i, answer in enumerate(answers)]
        made.append({"id": number, "annotations": given, "drafts": [], "predictions": [], "data": data, "meta": {}})
    return json.dumps(made, ensure_ascii=False)  # on one line, as Label Studio exports


def test_one_label_of_several_annotators(tmp_path):
    """The majority; of equals the first; what a reviewer declared right; never what was cancelled."""
    a, b = {"result": [choice("a")]}, {"result": [choice("b")]}
    tasks = [
        ("one", [a]),
        ("majority", [a, b, b]),
        ("tie", [b, a]),
        ("cancelled", [{**a, "was_cancelled": True}, b]),
        ("reviewed", [b, b, {**a, "ground_truth": True}]),
        ("skipped", [{"result": [], "was_cancelled": True}]),
        ("nobody", []),
    ]
    (tmp_path / "labelled.json").write_text(studio(*tasks))
    recipe = recipe_of(tmp_path, "sequence_classification", "labelled.json")  # recognised
    rows = rows_of(recipe)
    assert [row.values["label"] for row in rows] == ["a", "b", "b", "b", "a"]
    assert rows[1].line == "[1]" and rows[1].values["id"] == 1
    assert len(read_training_data(task_rows(recipe.task, recipe.data)).train) == 5
    unlabelled = open_inputs(task_rows(recipe.task, recipe.data), [str(tmp_path / "labelled.json")], "auto")
    assert [row.text for row in unlabelled.rows()] == [text for text, _ in tasks]


def test_annotators_are_counted_question_by_question(tmp_path):
    """Of three who agree on one thing and differ in another, the majority of each counts."""

    def answer(mood: str, topic: str, type: str) -> dict[str, Any]:
        choices = [{**choice(mood), "from_name": "mood"}, {**choice(topic), "from_name": "topic"}]
        return {"result": [*choices, span(0, 4, "Anna", type)]}

    answers = [answer("bad", "a", "LOC"), answer("good", "b", "PER"), answer("good", "c", "PER")]
    (tmp_path / "labelled.json").write_text(studio(("Anna sings", answers)))
    recipe = recipe_of(tmp_path, "sequence_classification", "labelled.json", columns={"label": "mood"})
    assert [row.values["mood"] for row in rows_of(recipe)] == ["good"]
    (row,) = rows_of(recipe_of(tmp_path, "token_classification", "labelled.json"))
    assert row.values["tags"] == ["B-PER", "O"]


def test_who_skips_a_question_does_not_vote_on_it(tmp_path):
    mood, topic = {**choice("good"), "from_name": "mood"}, {**choice("b"), "from_name": "topic"}
    answers = [{"result": [mood]}, {"result": [topic]}, {"result": [topic]}]
    (tmp_path / "labelled.json").write_text(studio(("Anna sings", answers)))
    recipe = recipe_of(tmp_path, "sequence_classification", "labelled.json", columns={"label": "mood"})
    assert [row.values["mood"] for row in rows_of(recipe)] == ["good"]


def test_several_labels(tmp_path):
    results = [choice("a, b")], [choice("a, b", "c")], []
    (tmp_path / "labelled.json").write_text(studio(*(("x", [{"result": result}]) for result in results)))
    recipe = recipe_of(tmp_path, "multi_label_classification", "labelled.json")
    assert [row.values["label"] for row in rows_of(recipe)] == [["a, b"], ["a, b", "c"], []]
    single = recipe_of(tmp_path, "sequence_classification", "labelled.json")
    bad = [row for row in rows_of(single) if isinstance(row, BadRow)]
    assert [row.where.rpartition("/")[2] for row in bad] == ["labelled.json[1]"] and bad[0].kind == "several labels"


@pytest.mark.parametrize(("start", "end"), [(6, 8), (8, 10)], ids=["code points", "UTF-16 units"])
def test_the_text_of_a_span_tells_how_positions_are_counted(tmp_path, start, end):
    (tmp_path / "labelled.json").write_text(studio((EMOJI, [{"result": [span(start, end, "北京", "LOC")]}])))
    (row,) = rows_of(recipe_of(tmp_path, "token_classification", "labelled.json", unit="characters"))
    tagged = [(word, tag) for word, tag in zip(row.values["tokens"], row.values["tags"], strict=True) if tag != "O"]
    assert tagged == [("北", "B-LOC"), ("京", "I-LOC")]


@pytest.mark.parametrize(
    ("text", "said"),
    [("C:\\new now", "C:\\new"), ("one\nnew way", "one\\nnew"), ("C:\\new\nold now", "C:\\new\\nold")],
)
def test_a_backslash_and_an_n_may_be_a_line_end_or_themselves(tmp_path, text, said):
    results = [span(0, text.rindex(" "), said, "X")]
    (tmp_path / "labelled.json").write_text(studio((text, [{"result": results}])))
    (row,) = rows_of(recipe_of(tmp_path, "token_classification", "labelled.json"))
    assert not isinstance(row, BadRow) and row.values["tags"][0] == "B-X", row


def test_what_counts_as_an_answer(tmp_path):
    """The same labels in another order are the same answer; a column of the data that is called label is none."""
    given = [choice("c")], [choice("a", "b")], [choice("b", "a")]
    tasks = [({"text": "x", "label": "old"}, [{"result": each} for each in given]), ({"text": "y", "label": "old"}, [])]
    (tmp_path / "labelled.json").write_text(studio(*tasks))
    rows = rows_of(recipe_of(tmp_path, "multi_label_classification", "labelled.json"))
    assert [row.values["label"] for row in rows] == [["a", "b"]]
    two = [{**choice("pos"), "from_name": "mood"}, {**choice("food"), "from_name": "topic"}]
    of_span = {"from_name": "sure", "type": "choices", "value": {"start": 0, "end": 1, "choices": ["no"]}}
    (tmp_path / "labelled.json").write_text(studio(("x", [{"result": [*two, of_span]}])))
    for column, label in (("topic", "food"), ("mood", "pos")):
        (row,) = rows_of(recipe_of(tmp_path, "sequence_classification", "labelled.json", columns={"label": column}))
        assert row.values[column] == label


@pytest.mark.parametrize("kind", ["hypertextlabels", "paragraphlabels"])
def test_spans_that_are_not_of_plain_text(tmp_path, kind):
    """A tagger would learn that there is nothing; the label of the whole text is another matter."""
    value = {kind: ["LOC"], "start": "0", "end": "0", "startOffset": 0, "endOffset": 3}
    results = [choice("a"), {"value": value, "type": kind}]
    (tmp_path / "tasks.json").write_text(studio(("one", [{"result": results}])))
    (tmp_path / "min.json").write_text(json.dumps([{"text": "one", "ner": [value], "annotation_id": 1}]))
    for file in ("tasks.json", "min.json"):
        (row,) = rows_of(recipe_of(tmp_path, "token_classification", file, format="label_studio"))
        assert isinstance(row, BadRow) and f"of {kind}" in row.reason
    (row,) = rows_of(recipe_of(tmp_path, "sequence_classification", "tasks.json"))
    assert row.values["label"] == "a"


def test_spans_of_another_field_than_text(tmp_path):
    """The interface names the field; without a text beside it, nothing else tells."""
    data = {"text": "one two", "title": "new york"}
    of_title = {**span(0, 3, None, "X"), "to_name": "title"}
    (tmp_path / "tasks.json").write_text(studio((data, [{"result": [of_title]}])))
    (row,) = rows_of(recipe_of(tmp_path, "token_classification", "tasks.json"))
    assert row.values["tokens"] == ["new", "york"] and row.values["tags"] == ["B-X", "O"]
    of_text = {**span(0, 3, "one", "X"), "to_name": "text"}
    (tmp_path / "tasks.json").write_text(studio((data, [{"result": [of_title, of_text]}])))
    (row,) = rows_of(recipe_of(tmp_path, "token_classification", "tasks.json"))
    assert isinstance(row, BadRow) and "of 'text', and others of 'title'" in row.reason


def test_a_task_without_a_text_is_a_bad_row(tmp_path):
    """It is answered with an error in predict, so that there are as many answers as tasks."""
    (tmp_path / "tasks.json").write_text(studio(("one", []), ({"review": "two"}, []), ("three", [])))
    recipe = recipe_of(tmp_path, "sequence_classification", "tasks.json")
    rows = list(open_inputs(task_rows(recipe.task, recipe.data), [str(tmp_path / "tasks.json")], "auto").rows())
    assert [isinstance(row, BadRow) for row in rows] == [False, True, False]
    assert rows[1].where.endswith("tasks.json[1]") and rows[1].kind == "missing key 'text'"


def test_spans_that_cannot_be_tags(tmp_path):
    cases = {
        "overlapping spans": [span(0, 9, None, "ORG"), span(4, 12, None, "LOC")],
        "bad span": [span(0, 99, None, "ORG")],
        "bad span ": [span(0, 3, "elsewhere", "ORG")],
        "empty span": [span(3, 4, None, "ORG")],
    }
    for kind, results in cases.items():
        (tmp_path / "labelled.json").write_text(studio(("New York City", [{"result": results}])))
        (row,) = rows_of(recipe_of(tmp_path, "token_classification", "labelled.json"))
        assert isinstance(row, BadRow) and row.kind == kind.strip(), row


def test_json_min(tmp_path):
    rows = [
        {"text": "New York", "id": 1, "ner": [{"start": 0, "end": 8, "text": "New York", "labels": ["LOC"]}]},
        {"text": "no", "id": 2, "annotator": 1, "annotation_id": 5, "lead_time": 2.0},
        {"text": "not yet", "id": 3},
    ]
    (tmp_path / "min.json").write_text(json.dumps(rows))
    recipe = recipe_of(tmp_path, "token_classification", "min.json", format="label_studio")
    assert [row.values["tags"] for row in rows_of(recipe)] == [["B-LOC", "I-LOC"], ["O"]]
    several = [{"text": "x", "topics": {"choices": ["a", "b"]}}, {"text": "y", "topics": "a, c"}]
    (tmp_path / "min.json").write_text(json.dumps(several))
    given = {"format": "label_studio", "columns": {"label": "topics"}}
    rows = rows_of(recipe_of(tmp_path, "multi_label_classification", "min.json", **given))
    assert [row.values["topics"] for row in rows] == [["a", "b"], ["a, c"]]
    (tmp_path / "min.json").write_text(json.dumps(several[1:]))
    assert rows_of(recipe_of(tmp_path, "sequence_classification", "min.json", **given))[0].values["topics"] == "a, c"


def test_json_min_is_known_by_what_stands_beside_the_data(tmp_path):
    """Its labels stand under the name of the question."""
    own = {"annotator": 1, "annotation_id": 5, "lead_time": 2.0, "created_at": "2026-11-26T10:00:00Z"}
    rows = [{"text": "x", "topics": {"choices": ["a", "b"]}, **own}, {"text": "y", "topics": "a", **own}]
    (tmp_path / "min.json").write_text(json.dumps(rows))
    given = {"columns": {"label": "topics"}}
    found = rows_of(recipe_of(tmp_path, "multi_label_classification", "min.json", **given))
    assert [row.values["topics"] for row in found] == [["a", "b"], ["a"]]
    with pytest.raises(UserError, match=r"min.json\[0\]: missing key 'label': the keys are 'text', 'topics'"):
        rows_of(recipe_of(tmp_path, "multi_label_classification", "min.json"))
    spans = [{"text": "New York", "ner": [{"start": 0, "end": 8, "text": "New York", "labels": ["LOC"]}]}]
    (tmp_path / "min.json").write_text(json.dumps(spans))  # cut down by hand: a tagger can have no other use for it
    assert rows_of(recipe_of(tmp_path, "token_classification", "min.json"))[0].values["tags"] == ["B-LOC", "I-LOC"]


@pytest.mark.parametrize("ending", [".csv", ".tsv"])
@pytest.mark.parametrize("whole", [True, False])
def test_tables_of_label_studio_hold_json(tmp_path, ending, whole):
    """As pandas writes them, by which it makes them. `whole`: with the columns that Label Studio adds."""
    own = {"id": 1, "annotator": 1, "annotation_id": 5, "lead_time": 2.0} if whole else {}
    spans = [{"start": 0, "end": 8, "text": "New York", "labels": ["LOC"]}]
    rows = [
        {"text": "New York,\r\nagain", "topics": {"choices": ["a", "b, c"]}, "ner": spans},
        {"text": "two", "topics": "a", "ner": [{**spans[0], "end": 3, "text": "two"}]},
        {"text": "three", "topics": {"choices": ["d", "a"]}, "ner": [{**spans[0], "end": 5, "text": "three"}]},
    ]
    spelt = [{key: json.dumps(row[key]) for key in ("topics", "ner") if row[key] != "a"} for row in rows]
    cells = [{**row, **cell, **own} for row, cell in zip(rows, spelt, strict=True)]
    table = pandas.DataFrame(cells).to_csv(sep="," if ending == ".csv" else "\t", index=False)
    (tmp_path / f"t{ending}").write_bytes(table.encode())
    given = {"columns": {"label": "topics"}, **({} if whole or ending == ".csv" else {"format": "quoted_tsv"})}
    recipe = recipe_of(tmp_path, "multi_label_classification", f"t{ending}", **given)
    data = read_training_data(task_rows(recipe.task, recipe.data))
    assert data.labels.names == ("a", "b, c", "d") and [row.labels for row in data.train] == [(0, 1), (0,), (0, 2)]
    good, *_ = rows_of(recipe_of(tmp_path, "token_classification", f"t{ending}"))
    assert good.values["text"] == "New York,\r\nagain" and good.line == 2
    assert good.values["tokens"] == ["New", "York", ",", "again"]
    assert good.values["tags"] == ["B-LOC", "I-LOC", "O", "O"]
    recipe = recipe_of(tmp_path, "sequence_classification", f"t{ending}", **given)
    with pytest.raises(UserError, match=r"several labels: a, b, c; a text has one"):
        read_training_data(task_rows(recipe.task, recipe.data))


DOCCANO = {
    "label": {"id": 1, "text": EMOJI, "label": [[8, 10, "LOC"]]},
    "labels": {"id": 1, "text": EMOJI, "labels": [[8, 10, "LOC"]]},
    "data": {"id": 1, "data": EMOJI, "label": [[8, 10, "LOC"]]},
    "entities": {
        "text": EMOJI,
        "entities": [{"id": 7, "label": "LOC", "start_offset": 8, "end_offset": 10}],
        "relations": [{"id": 1, "from_id": 7, "to_id": 7, "type": "x"}],
    },
    "annotations": {
        "text": EMOJI,
        "annotations": [{"label": 2, "label_name": "LOC", "start_offset": 8, "end_offset": 10, "user": 1}],
        "meta": {},
    },
}


@pytest.mark.parametrize("name", DOCCANO)
@pytest.mark.parametrize("layout", ["lines", "array", "indented"])
def test_spans_of_doccano(tmp_path, name, layout, capsys):
    """Positions are UTF-16 units, of which a warning tells: a program that counts characters writes the same form."""
    doccano._warn_of_units.cache_clear()
    records = [DOCCANO[name], DOCCANO[name]]
    text = {
        "lines": "".join(json.dumps(record) + "\n" for record in records),
        "array": json.dumps(records),
        "indented": "".join(json.dumps(record, indent=4) + "\n" for record in records),
    }[layout]
    (tmp_path / "export.jsonl").write_text(text)
    rows = rows_of(recipe_of(tmp_path, "token_classification", "export.jsonl", unit="characters"))
    assert len(rows) == 2
    for row in rows:
        assert "".join(row.values["tokens"]) == EMOJI.replace(" ", "")
        assert [tag for tag in row.values["tags"] if tag != "O"] == ["B-LOC", "I-LOC"]
        assert row.values["tokens"][row.values["tags"].index("B-LOC")] == "北"
    assert capsys.readouterr().err.count("warning: spans behind an emoji") == 1


def test_labels_of_doccano(tmp_path):
    rows = [{"text": "good", "label": ["pos"]}, {"text": "bad", "label": ["neg"]}, {"text": "?", "label": []}]
    (tmp_path / "export.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "old.tsv").write_text("text\tlabel\nfine\tpos\n")
    recipe = recipe_of(tmp_path, "sequence_classification", ["old.tsv", "export.jsonl"])  # other files beside it
    assert [row.values["label"] for row in rows_of(recipe)] == ["pos", "pos", "neg"]
    recipe = recipe_of(tmp_path, "multi_label_classification", "export.jsonl", format="doccano")
    assert [row.values["label"] for row in rows_of(recipe)] == [["pos"], ["neg"], []]
    renamed = [{"id": i, "data": row["text"], "label": row["label"]} for i, row in enumerate(rows)]
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in renamed))
    for task, columns in (("sequence_classification", {}), ("multi_label_classification", {"text": "data"})):
        found = rows_of(recipe_of(tmp_path, task, "data.jsonl", columns=columns))
        assert [row.values[columns.get("text", "text")] for row in found][:2] == ["good", "bad"]


def test_what_nobody_annotated(tmp_path):
    (tmp_path / "labelled.json").write_text(studio(("one", []), ("two", [])))
    recipe = recipe_of(tmp_path, "sequence_classification", "labelled.json")
    with pytest.raises(UserError, match="none of 2 texts is annotated"):
        rows_of(recipe)
    (tmp_path / "broken.json").write_text('[{"data": {"text": "a"}, "annotations": [{"result": 3}]}, 7]')
    recipe = recipe_of(tmp_path, "sequence_classification", "broken.json", format="label_studio")
    assert [row.kind for row in rows_of(recipe)] == ["not a task of Label Studio", "not a JSON object"]


@pytest.mark.parametrize(
    ("task", "result"),
    [
        ("sequence_classification", choice("a")),
        ("multi_label_classification", choice("a")),
        ("token_classification", span(0, 3, "one", "X")),
    ],
)
def test_texts_that_wait_for_their_label_are_not_labelled(tmp_path, task, result):
    (tmp_path / "half.json").write_text(studio(("one", [{"result": [result]}]), ("two", []), ("three", [])))
    recipe = recipe_of(tmp_path, task, "half.json")
    assert len(known_texts(recipe, task_rows(task, recipe.data))) == 1


def map_with(folder: Path, monkeypatch: pytest.MonkeyPatch, code: str) -> list[str]:
    """The value of data.map for the function `f` of `code`."""
    (folder / "map_code.py").write_text(code)
    monkeypatch.chdir(folder)
    monkeypatch.delitem(sys.modules, "map_code", raising=False)
    return ["map_code:f"]


@pytest.mark.parametrize("kind", ["label_studio", "doccano"])
def test_what_nobody_annotated_gets_no_label_from_a_function(tmp_path, monkeypatch, capsys, kind):
    """It is left out before data.map, which could give every text a label, and is named; a text that is labelled is
    known as it was read and as the function makes it."""
    maps = map_with(tmp_path, monkeypatch, "def f(row):\n    return {'text': row['text'].upper(), 'label': 'b'}\n")
    if kind == "label_studio":
        (tmp_path / "half.json").write_text(studio(("one", [{"result": [choice("a")]}]), ("two", []), ("three", [])))
        places = "half.json[1], [2]\n"
    else:
        lines = [{"text": "one", "label": ["a"]}, {"text": "two", "label": []}, {"text": "three"}]
        (tmp_path / "half.json").write_text("".join(json.dumps(line) + "\n" for line in lines))
        places = "half.json:2, 3\n"
    recipe = recipe_of(tmp_path, "sequence_classification", "half.json", map=maps, format=kind)
    rows = task_rows(recipe.task, recipe.data)
    assert [dict(row.values) for row in rows_of(recipe)] == [{"text": "ONE", "label": "b"}]
    assert "2 texts without annotation left out: " in (told := capsys.readouterr().err) and told.endswith(places)
    known = known_texts(recipe, rows)
    assert [text_key(rows, TextExample(text, None, None)) in known for text in ("one", "ONE", "two", "TWO")] == [
        True, True, False, False
    ]  # fmt: skip


def test_a_function_may_find_the_label_of_a_minimal_export(tmp_path, monkeypatch):
    """Its key is the user's own, so that nothing tells whether somebody filled it in."""
    maps = map_with(tmp_path, monkeypatch, "def f(row):\n    return {'text': row['text'], 'label': row['mood']}\n")
    (tmp_path / "min.json").write_text(json.dumps([{"text": "one", "mood": "a"}, {"text": "two"}]))
    recipe = recipe_of(tmp_path, "sequence_classification", "min.json", map=maps, format="label_studio")
    good, bad = rows_of(recipe)
    assert good.values["label"] == "a" and bad.where.endswith("min.json[1]") and "'mood'" in bad.reason


def test_many_texts_without_annotation_are_told_by_the_first(tmp_path, capsys):
    tasks = [("one", [{"result": [choice("a")]}]), *((f"text {i}", []) for i in range(14))]
    (tmp_path / "half.json").write_text(studio(*tasks))
    rows_of(recipe_of(tmp_path, "sequence_classification", "half.json"))
    assert capsys.readouterr().err.endswith("half.json[1], [2], [3], [4], [5], [6], [7], [8], [9], [10] and 4 more\n")


def test_rows_with_an_empty_column_are_not_labelled(tmp_path):
    rows = [{"text": "one", "label": "a"}, {"text": "two", "label": None}, {"text": "three", "label": ""}]
    (tmp_path / "to_label.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for task, labelled in (("sequence_classification", 1), ("multi_label_classification", 3)):
        recipe = recipe_of(tmp_path, task, "to_label.jsonl")
        assert len(known_texts(recipe, task_rows(task, recipe.data))) == labelled


TAGGED = [
    {"tokens": list("💩👍他住在北京。"), "tags": ["O"] * 5 + ["B-LOC", "I-LOC", "O"]},
    {"tokens": list("张三来"), "tags": ["B-PER", "I-PER", "O"]},
]
LABELLED = {
    "sequence_classification": [{"id": 1, "text": EMOJI, "label": "好, 评"}, {"id": 2, "text": "b", "label": "neg"}],
    "multi_label_classification": [{"text": "a", "label": ["x", "y"]}, {"text": EMOJI, "label": []}],
    "text_matching": [{"text": "a", "text_pair": EMOJI, "label": "1"}, {"text": "b", "text_pair": "c", "label": "0"}],
    "token_classification": TAGGED,
    "lexical_analysis": TAGGED,
}


@pytest.mark.parametrize("task", LABELLED)
@pytest.mark.parametrize("kind", ["label_studio", "doccano"])
def test_there_and_back(tmp_path, task, kind):
    """Every label and tag comes back, also in texts with emoji, and so do the other keys of a row."""
    rows = LABELLED[task]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    more = {"columns": {"text_pair": "text_pair"}} if task == "text_matching" else {}
    more |= {"unit": "characters"} if rows is TAGGED else {}
    made = convert(recipe_of(tmp_path, task, "rows.jsonl", **more), tmp_path / "there.json", kind)
    assert made.rows == 2
    if kind == "label_studio":
        interface = made.interface.read_text()
        names = {"LOC", "PER"} if rows is TAGGED else {label for row in rows for label in _listed(row["label"])}
        assert all(f'value="{name}"' in interface for name in names) and 'toName="text"' in interface
    else:
        assert made.interface is None
    recipe = recipe_of(tmp_path, task, "there.json", format=kind, **more)
    convert(recipe, tmp_path / "back.jsonl", "jsonl")
    back = [json.loads(line) for line in (tmp_path / "back.jsonl").read_text().splitlines()]
    assert [{key: row[key] for key in given} for given, row in zip(rows, back, strict=True)] == rows


def _listed(label: Any) -> list[str]:
    return label if isinstance(label, list) else [label]


def test_what_is_left_out_of_an_export_is_told(tmp_path, capsys):
    relation = {"from_id": "a", "to_id": "b", "type": "relation", "direction": "right"}
    rating = {"from_name": "r", "to_name": "y", "type": "rating", "value": {"rating": 3}}
    results = [span(0, 4, "Anna", "PER"), relation, rating]
    (tmp_path / "studio.json").write_text(studio(("Anna sings", [{"result": results}])))
    record = {"text": "Anna sings", "entities": [{"id": 1, "start_offset": 0, "end_offset": 4, "label": "PER"}]}
    record |= {"relations": [{"id": 1, "from_id": 1, "to_id": 1, "type": "x"}], "Comments": ["check", "why"]}
    (tmp_path / "doccano.jsonl").write_text(json.dumps(record) + "\n")
    for name, count in (("studio.json", 2), ("doccano.jsonl", 3)):
        convert(recipe_of(tmp_path, "token_classification", name), tmp_path / f"{name}.jsonl", "jsonl")
        told = capsys.readouterr().err
        assert told.count(f"{name}: relations, comments and answers of other kinds are not read ({count})") == 1, told


def test_without_a_good_row_nothing_is_written(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"text": "", "label": "a"}\n')
    recipe = recipe_of(tmp_path, "sequence_classification", "rows.jsonl", labels=["a", "b"], on_bad_row="skip")
    with pytest.raises(UserError, match="no row is usable"):
        convert(recipe, tmp_path / "tasks.json", "label_studio")
    assert not (tmp_path / "tasks.json").exists()


def test_columns_that_doccano_has_itself(tmp_path, capsys):
    """A text of the user's own comes back; what would be read as labels or comments is told, and left out."""
    rows = [{"text": "a", "label": "x", "comments": "mine", "cats": 3}, {"text": "b", "label": "y", "Comments": []}]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    convert(recipe_of(tmp_path, "sequence_classification", "rows.jsonl"), tmp_path / "there.jsonl", "doccano")
    told = capsys.readouterr().err
    assert "takes it for its own: cats\n" in told and "takes it for its own: Comments\n" in told
    read = rows_of(recipe_of(tmp_path, "sequence_classification", "there.jsonl"))
    wanted = [{"text": "a", "label": "x", "comments": "mine"}, {"text": "b", "label": "y"}]
    assert [dict(row.values) for row in read] == wanted


def test_a_column_called_chosen_stays():
    """What an earlier choice told of a row does not."""
    row = ChosenRow("f:1", "a", without_reason({"text": "a", "chosen": "mine"}), None, {"label": "x"}, 0.5, 0.5, 1)
    line = row.line()
    assert line["given_chosen"] == "mine" and line["chosen"]["stands_for"] == 1
    assert without_reason({"text": "a", "chosen": line["chosen"]}) == {"text": "a"}


def test_tasks_and_interface_are_two_files(tmp_path):
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in LABELLED["sequence_classification"]))
    recipe = recipe_of(tmp_path, "sequence_classification", "rows.jsonl")
    with pytest.raises(UserError, match="would be one file"):
        convert(recipe, tmp_path / "tasks.xml", "label_studio")
    assert not (tmp_path / "tasks.xml").exists()


def test_parts_of_an_export_keep_its_format(tmp_path):
    from nlpctl.datatools.split import split_data

    tasks = [(f"text {i}", [{"result": [choice("ab"[i % 2])]}]) for i in range(20)]
    (tmp_path / "labelled.json").write_text(studio(*tasks))
    recipe = recipe_of(tmp_path, "sequence_classification", "labelled.json")
    made = split_data(recipe, tmp_path / "parts", {"dev": 5, "test": 5})
    for part, file in made.files.items():
        assert all(set(task) >= {"annotations", "data"} for task in json.loads(file.read_text()))
        assert len(rows_of(recipe_of(tmp_path, "sequence_classification", str(file)))) == made.rows[part]


def test_a_repeated_key_of_an_object_over_several_lines(tmp_path):
    (tmp_path / "labelled.json").write_text(
        '{"text": "a",\n"label": ["x"]}\n{"text": "b",\n"text": "c", "label": ["y"]}\n{"text": "d", "label": ["y"]}'
    )
    rows = rows_of(recipe_of(tmp_path, "sequence_classification", "labelled.json", format="doccano"))
    assert [row.line for row in rows] == [1, 3, 5]
    assert isinstance(rows[1], BadRow) and rows[1].reason.startswith("repeated key: 'text' stands twice ('b' and 'c')")


def test_parts_of_objects_that_stand_on_one_line_hold_each_once(tmp_path):
    from nlpctl.datatools.split import split_data

    objects = [json.dumps({"text": f"text {i}", "label": ["ab"[i % 2]]}) for i in range(12)]
    (tmp_path / "labelled.json").write_text(objects[0].replace(", ", ",\n") + " " + " ".join(objects[1:]))
    recipe = recipe_of(tmp_path, "sequence_classification", "labelled.json", format="doccano")
    assert [row.line for row in rows_of(recipe)][:4] == [1, 2, "2[1]", "2[2]"]
    made = split_data(recipe, tmp_path / "parts", {"dev": 4, "test": 0})
    parts = [row["text"] for file in made.files.values() for row in json.loads(file.read_text())]
    assert sorted(parts) == sorted(f"text {i}" for i in range(12))


def test_positions():
    point = from_utf16(EMOJI)
    assert [point(to_utf16(EMOJI)(i)) for i in range(len(EMOJI) + 1)] == list(range(len(EMOJI) + 1))
    with pytest.raises(ValueError, match="middle of a character"):
        point(1)
    assert tags_from_marks("unbelievable", [Mark(2, 9, "X")], word_spans) == (
        ["un", "believa", "ble"],
        ["O", "B-X", "O"],
    )
    two = [Mark(0, 2, "PER"), Mark(2, 4, "PER")]
    assert tags_from_marks("张三李四", two, character_spans)[1] == ["B-PER", "I-PER"] * 2


def test_words_are_those_of_predict_wherever_marks_end(tmp_path, capsys):
    """A word that was cut at a mark gave the place of the entity away, which predict does not know."""
    rows = [
        {"text": "그는 서울에서 산다", "entities": [{"start": 3, "end": 5, "label": "LOC"}]},
        {"text": "서울인천 부산 에서", "entities": [
            {"start": 0, "end": 2, "label": "LOC"}, {"start": 2, "end": 7, "label": "LOC"}]},
        {"text": "New York", "entities": [{"start": 0, "end": 8, "label": "LOC"}]},
    ]  # fmt: skip
    (tmp_path / "marked.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = read_training_data(task_rows("token_classification", recipe_of(
        tmp_path, "token_classification", "marked.jsonl").data))  # fmt: skip
    names, scheme = data.labels.names, detect_scheme(data.labels.names, "")
    for example, row in zip(data.train, rows, strict=True):
        assert example.words() == data.rows.read({"text": row["text"]}, None).words()
        marked = [(span.type, span.start, span.end) for span in example.entities(scheme, names)]
        assert marked == [(each["label"], each["start"], each["end"]) for each in row["entities"]]
    tags = [[names[tag] for tag in example.tags] for example in data.train]
    assert tags == [["O", "B-LOC", "O"], ["B-LOC", "B-LOC", "O"], ["B-LOC", "I-LOC"]]
    assert [example.marked is None for example in data.train] == [False, False, True]
    assert data.rows.label_names(data.train[1], data.labels) == ("LOC", "LOC")
    assert data.rows.target(data.train[0]) != data.rows.target(dataclasses.replace(data.train[0], marked=None))
    message = "3 marked spans of marked.jsonl end inside a word, as '서울' in '서울에서': a tag is that of a whole word"
    said = capsys.readouterr().err
    assert message in said.replace(str(tmp_path) + "/", "") and said.rstrip().endswith("set data.unit: characters")

    by_character = recipe_of(tmp_path, "token_classification", "marked.jsonl", unit="characters")
    data = read_training_data(task_rows("token_classification", by_character.data))
    assert all(example.marked is None for example in data.train) and not capsys.readouterr().err


def test_predict_reads_no_marks(tmp_path):
    (tmp_path / "marked.jsonl").write_text(
        json.dumps({"text": "서울에서", "entities": [{"start": 0, "end": 2, "label": "LOC"}]})
    )
    recipe = recipe_of(tmp_path, "token_classification", "marked.jsonl")
    (row,), reader = rows_of(recipe), task_rows("token_classification", recipe.data)
    assert reader.read(row.values, None).words() == ["서울에서"]


CLUENER = [
    {"text": "浙商银行企业信贷部叶老桂", "label": {"name": {"叶老桂": [[9, 11]]}, "company": {"浙商银行": [[0, 3]]}}},
    {"text": "💩叶老桂见叶老桂", "label": {"name": {"叶老桂": [[1, 3], [5, 7]]}}},
    {"text": "没有", "label": {}},
    {"text": "叶老桂", "label": {"name": {"叶老": [[0, 2]]}}},
    {"text": "叶老桂", "label": {"name": {"叶老桂": [[1, 3]]}}},
    {"text": "叶老桂", "label": {"name": ["叶老桂"]}},
    {"id": 7, "text": "谁也没标"},
]


@pytest.mark.parametrize("unit", ["words", "characters"])
def test_cluener_counts_characters_and_the_last_one_too(tmp_path, unit):
    (tmp_path / "train.json").write_text("".join(json.dumps(row) + "\n" for row in CLUENER))  # called .json there
    rows = rows_of(recipe_of(tmp_path, "token_classification", "train.json", unit=unit))
    found = []
    for row in rows[:3]:
        tagged = zip(row.values["tokens"], row.values["tags"], strict=True)
        found.append(["".join(word + " " * (tag[0] == "O") for word, tag in tagged if tag != "O")])
        assert "".join(row.values["tokens"]) == row.values["text"]
    assert found == [["浙商银行叶老桂"], ["叶老桂叶老桂"], [""]]
    assert rows[0].values["tags"][0] == "B-company" and rows[1].values["tags"].count("B-name") == 2
    assert [row.line for row in rows] == [1, 2, 3, 4, 5, 6]  # nobody annotated the last one
    assert rows[3].reason == "bad span: 0 to 2 is '叶老桂', not '叶老'"
    assert "bad span: 1 to 4 of a text of 3" in rows[4].reason and rows[5].kind == "bad label"


def test_cluener_becomes_files_of_other_programs(tmp_path):
    (tmp_path / "train.json").write_text("".join(json.dumps(row) + "\n" for row in CLUENER[:3]))
    recipe = recipe_of(tmp_path, "token_classification", "train.json", unit="characters")
    convert(recipe, tmp_path / "d.jsonl", "doccano")
    labels = [json.loads(line)["label"] for line in (tmp_path / "d.jsonl").read_text().splitlines()]
    assert labels == [[[0, 4, "company"], [9, 12, "name"]], [[2, 5, "name"], [6, 9, "name"]], []]  # UTF-16 units


SPANS = {
    "spacy": {"text": EMOJI, "entities": [{"start": 6, "end": 8, "label": "LOC"}]},
    "prodigy": {
        "text": EMOJI,
        "_task_hash": 1,
        "tokens": [{"text": "💩", "start": 0, "end": 1, "id": 0}],
        "spans": [{"start": 6, "end": 8, "token_start": 3, "token_end": 4, "label": "LOC"}],
        "answer": "accept",
    },
    "argilla": {"text": EMOJI, "id": "a", "annotation": [{"start": 6, "end": 8, "label": "LOC", "score": 1.0}]},
    "under label": {"text": EMOJI, "label": [{"start": 6, "end": 8, "type": "LOC"}], "relations": []},
    "predict": {"text": EMOJI, "entities": [{"type": "LOC", "start": 6, "end": 8, "text": "北京", "id": 7}], "id": 2},
}


@pytest.mark.parametrize("name", SPANS)
@pytest.mark.parametrize("ending", [".jsonl", ".json"])
def test_spans_as_objects_count_characters(tmp_path, name, ending):
    records = [SPANS[name], SPANS[name]]
    lines = "".join(json.dumps(record) + "\n" for record in records)
    (tmp_path / f"train{ending}").write_text(lines if ending == ".jsonl" else json.dumps(records))
    rows = rows_of(recipe_of(tmp_path, "token_classification", f"train{ending}", unit="characters"))
    assert len(rows) == 2
    for row in rows:
        tagged = zip(row.values["tokens"], row.values["tags"], strict=True)
        assert [each for each in tagged if each[1] != "O"] == [("北", "B-LOC"), ("京", "I-LOC")]


def test_spans_as_objects_that_are_wrong_or_missing(tmp_path):
    def row(start: Any, end: Any, **said: Any) -> dict[str, Any]:
        return {"text": "Anna sings", "entities": [{"start": start, "end": end, "label": "X", **said}]}

    good = row(0, 4, text="Anna")
    records = [
        *({"text": "nobody", "entities": []} for _ in range(30)),  # the first rows do not tell the form
        good,
        row(0, 3, text="Anna"),
        row(5, 11),
        row("0", 4),
        {"text": "Anna sings", "entities": [[0, 4, "X"]]},
        {"text": "Anna sings", "spans": None},
        {**SPANS["prodigy"], "answer": "reject"},
    ]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    rows = rows_of(recipe_of(tmp_path, "token_classification", "train.jsonl"))
    assert rows[30].values["tags"] == ["B-X", "O"] and rows[0].values["tags"] == ["O"]
    assert [row.reason for row in rows[31:]] == [
        "bad span: 0 to 3 is 'Ann', not 'Anna': the end is behind the last character",
        "bad span: 5 to 11 of a text of 10 characters",
        "bad span: '0' to 4 are not positions",
        "bad span: [0, 4, 'X'] is no object with start, end and label",
    ]  # the last two are not annotated


def test_spans_as_objects_become_files_of_other_programs(tmp_path):
    (tmp_path / "train.jsonl").write_text(json.dumps(SPANS["predict"]) + "\n")
    recipe = recipe_of(tmp_path, "token_classification", "train.jsonl", unit="characters")
    convert(recipe, tmp_path / "d.jsonl", "doccano")
    assert json.loads((tmp_path / "d.jsonl").read_text())["label"] == [[8, 10, "LOC"]]  # UTF-16 units


def test_an_answer_keeps_the_spans_of_its_row(tmp_path):
    (tmp_path / "rows.jsonl").write_text(json.dumps(SPANS["predict"]) + "\n")
    recipe = recipe_of(tmp_path, "token_classification", "rows.jsonl")
    given = open_inputs(task_rows(recipe.task, recipe.data), [str(tmp_path / "rows.jsonl")], "auto")
    ((_, kept),) = given.kept_rows(None)
    assert kept["entities"] == SPANS["predict"]["entities"]


def test_spans_beside_tags_and_beside_older_spans() -> None:
    """Tags of tokens are read as they are; nobody but the user knows which of two lists counts."""
    row = {"text": "ab cd", "tokens": ["ab", "cd"], "tags": ["B-X", "O"], "entities": [span_of(0, 1, "Y")]}
    assert not spans.is_record(row)
    assert spans.is_record({**row, "tags": None})
    one, other = span_of(0, 1, "X"), span_of(1, 2, "X")
    beside = {"text": "abc", "entities": [], "spans": [one]}
    for each in (beside, {**beside, "entities": [other]}, {**beside, "spans": [[0, 1, "X"]]}):
        with pytest.raises(ValueError, match="'entities' and 'spans' hold different spans|is no object with start"):
            spans.annotated(each)
    for name, value in (("entities", [{"name": "Anna"}]), ("ents", {"a": 1}), ("entities", "x"), ("ents", 0)):
        for key in ("spans", "label"):
            with pytest.raises(ValueError, match=f"is no object with start|bad spans: '{name}' is .* not a list"):
                spans.annotated({"text": "abc", key: [one], name: value})
    groups = {"text": "abc", "ents": [one], "spans": {"sc": [other]}}  # as spaCy's Doc.to_json
    assert spans.annotated(groups).marks == (Mark(0, 1, "X"),)
    kept = ({"label": []}, {"entities": None}, {"entities": ["Anna"]}, {"entities": [one, one]}, {"ents": {"sc": []}})
    for each in kept:
        assert spans.annotated({"text": "abc", "spans": [one], **each}).marks == (Mark(0, 1, "X"),)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"entities": {"PER": [0, 4]}}, "bad spans: 'entities' is an object, not a list of objects"),
        ({"entities": "PER"}, "bad spans: 'entities' is a string"),
        ({"spans": 0}, "bad spans: 'spans' is a number"),
        ({"ents": False}, "bad spans: 'ents' is false"),
        ({"annotations": {"start": 0, "end": 4}}, "bad spans: 'annotations' is an object"),
        ({"entities": None}, None),
        ({"label": "news"}, None),
    ],
)
def test_spans_that_stand_in_no_list_are_not_left_out_as_without_annotation(value, reason):
    row = {"text": "Anna sings", **value}
    if reason is None:
        assert not spans.annotated(row).labelled
    else:
        with pytest.raises(ValueError, match=reason):
            spans.annotated(row)


def test_what_is_no_annotation_of_other_programs_is_told(tmp_path):
    """Not read as that somebody found nothing, nor as that nobody looked."""
    assert not doccano.annotated({"text": "a", "label": None}).labelled
    assert doccano.annotated({"text": "a", "label": []}).labelled
    for given in ({}, "", 0, [{"result": [3]}], [{"result": ["LOC"]}], [{"result": [{"value": "LOC"}]}]):
        with pytest.raises(ValueError, match="not a task of Label Studio"):
            label_studio.annotated({"data": {"text": "a"}, "annotations": given})
    relation = {"type": "relation", "from_id": "a", "to_id": "b"}
    assert label_studio.annotated({"data": {"text": "a"}, "annotations": [{"result": [relation]}]}).labelled


def test_a_span_without_label_takes_none_from_its_neighbours():
    """Of JSON_MIN, which has one where a person drew a span and chose no label."""
    ner = [{"start": 0, "end": 3, "text": "New", "labels": ["LOC"]}, {"start": 4, "end": 8, "text": "York"}]
    record = {"text": "New York", "ner": ner, "annotation_id": 1, "annotator": 1}
    assert label_studio.annotated(record).marks == (Mark(0, 3, "LOC"),)
    assert label_studio.annotated({**record, "ner": [*ner, {"hypertextlabels": ["X"]}]}).unread == "hypertextlabels"
    with pytest.raises(ValueError, match="bad span: a number among those of 'ner'"):
        label_studio.annotated({**record, "ner": [*ner, 5]})


def span_of(start: int, end: int, label: str) -> dict[str, Any]:
    return {"start": start, "end": end, "label": label}
