"""`nlpctl data audit` and `data apply`: wrong labels found by folds, and corrected copies."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

pytest.importorskip("cleanlab")


@pytest.fixture(scope="session")
def audited(work, folds):
    """The findings in rows of which every tenth is labelled wrongly (conftest.py)."""
    done = work.nlpctl("data", "audit", "folds", "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["result"]


def findings(work, audited):
    return [json.loads(line) for line in (work / audited["findings"]).read_text().splitlines()]


def wrong_rows(work):
    """The rows whose label contradicts their telling word."""
    found = set()
    for number, line in enumerate((work / "noisy.tsv").read_text().splitlines()[1:], 2):
        text, label = line.split("\t")
        positive = bool({"good", "clean", "clean!"} & set(text.split()))
        if positive != (label == "pos"):
            found.add(f"{work / 'noisy.tsv'}:{number}")
    return found


def test_wrong_labels_are_found(work, audited):
    wrong = [each for each in findings(work, audited) if each["kind"] == "wrong label"]
    assert audited["found"]["wrong label"] == len(wrong) >= 2
    right = wrong_rows(work)
    assert sum(each["where"] in right for each in wrong) >= 0.7 * len(wrong)
    assert all(each["proposed"] != each["given"] and each["apply"] is None for each in wrong)
    assert [each["given_probability"] for each in wrong] == sorted(each["given_probability"] for each in wrong)


def test_how_good_the_folds_are_is_told(work, audited):
    scores = {name: json.loads((work / f"folds/held/{name}/scores.json").read_text()) for name in audited["scores"]}
    assert len(scores) > 1 and audited["metric"] == "accuracy" and audited["worth"] == []  # few rows
    assert audited["scores"] == {name: each["accuracy"] for name, each in scores.items()}
    assert "accuracy of the folds" in (work / audited["page"]).read_text()


def test_folds_that_have_learned_nothing_are_told(work, audited):
    dull = shutil.copytree(work / "folds", work / "dull-folds")
    file = dull / "held" / next(iter(audited["scores"])) / "scores.json"
    scores = json.loads(file.read_text())
    for name, figures in scores["labels"].items():  # "pos" is the answer to all
        figures |= {"recall": float(name == "pos"), "precision": figures["support"] / scores["rows"]}
    file.write_text(json.dumps(scores))
    done = work.nlpctl("data", "audit", dull, "--overwrite", "--json")
    assert done.returncode == 0, done.stderr
    assert "1 of 2 models have learned nothing" in done.stderr and "(fold-1: all " in done.stderr
    result = json.loads(done.stdout)["result"]
    assert list(result["useless"]) == ["fold-1"] and "have learned nothing" in Path(result["page"]).read_text()


def test_contradictions_are_found(work, audited):
    pairs = [each for each in findings(work, audited) if "other" in each]
    last = len((work / "noisy.tsv").read_text().splitlines())
    places = {each["where"].rpartition(":")[2] for each in pairs}
    assert places & {str(last), str(last - 1)}


def test_the_page_has_a_box_for_each_finding(work, audited):
    page = (work / audited["page"]).read_text()
    possible = [each for each in findings(work, audited) if each["proposed"] is not None or each["kind"] == "outlier"]
    assert page.count('type="checkbox"') == len(possible) and "ticked.jsonl" in page
    embedded = page.partition('id="findings">')[2].partition("</script>")[0]
    assert json.loads(embedded) == findings(work, audited)


def test_ticked_findings_are_applied_to_a_copy(work, audited):
    before = (work / "noisy.tsv").read_bytes()
    lines = findings(work, audited)
    chosen = next(each for each in lines if each["kind"] == "wrong label")
    chosen["apply"] = True
    (work / "ticked.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines))
    done = work.nlpctl("data", "apply", "ticked.jsonl", "-o", "corrected", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)["result"]
    assert (result["changed"], result["dropped"]) == (1, 0) and (work / "noisy.tsv").read_bytes() == before
    old, new = before.decode().splitlines(), (work / "corrected" / "noisy.tsv").read_text().splitlines()
    changed = [number for number, pair in enumerate(zip(old, new, strict=True), 1) if pair[0] != pair[1]]
    assert changed == [int(chosen["where"].rpartition(":")[2])]
    assert new[changed[0] - 1].endswith(f"\t{chosen['proposed']}")
    done = work.nlpctl("data", "apply", audited["findings"], "--all", "--drop", "-o", "cleaned", "--json")
    assert json.loads(done.stdout)["result"]["dropped"] == audited["found"]["wrong label"]
    done = work.nlpctl("data", "apply", audited["findings"], "--first", "2", "-o", "surest", "--json")
    assert json.loads(done.stdout)["result"]["changed"] == 2
    chosen["apply"] = False  # the second of the first two remains, and no third takes its place
    (work / "refused.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines))
    done = work.nlpctl("data", "apply", "refused.jsonl", "--first", "2", "-o", "but_one", "--json")
    found = json.loads(done.stdout)["result"]
    assert (found["changed"], found["refused"]) == (1, 1)
    done = work.nlpctl("data", "apply", audited["findings"], "--first", "999", "-o", "first_of_few")
    assert "fewer than the first 999" in done.stderr and "name them in section data" in done.stderr


def test_what_is_refused(work, base, audited):
    def refused(*words):
        done = work.nlpctl("data", *words)
        assert done.returncode == 2 and "->" in done.stderr, done.stderr
        return done.stderr

    assert "no runs of folds" in refused("audit", "base")
    assert "no runs of folds" in refused("audit", "recipe.yaml")
    assert "the file exists" in refused("audit", "folds")
    assert "is ticked" in refused("apply", audited["findings"], "-o", "never")
    assert "findings.jsonl" in refused("apply", "folds", "-o", "never")
    assert "--first N or --all" in refused("apply", audited["findings"], "--first", "2", "--all", "-o", "never")
    (work / "bad.jsonl").write_text('{"kind": "wrong label", "where": "a:1", "text": "", "apply": true}\n{"kind": 3}\n')
    assert "bad.jsonl:2" in refused("apply", "bad.jsonl", "-o", "never")
    lines = findings(work, audited)
    lines[0] |= {"apply": True, "given": "other", "proposed": "neg"}
    (work / "stale.jsonl").write_text(json.dumps(lines[0]) + "\n")
    assert "not what its finding says" in refused("apply", "stale.jsonl", "-o", "never")
    twice = findings(work, audited)[:1] * 2
    (work / "twice.jsonl").write_text("".join(json.dumps({**each, "apply": True}) + "\n" for each in twice))
    done = work.nlpctl("data", "apply", "twice.jsonl", "-o", "once", "--json")
    assert json.loads(done.stdout)["result"]["changed"] == 1
    twice[1] = {**twice[1], "proposed": "neither"}
    (work / "twice.jsonl").write_text("".join(json.dumps({**each, "apply": True}) + "\n" for each in twice))
    assert "twice.jsonl:2: another finding above" in refused("apply", "twice.jsonl", "-o", "never")
    noisy = (work / "noisy.tsv").read_bytes()
    head, _, rest = noisy.partition(b"\n")
    (work / "noisy.tsv").write_bytes(head + b"\nnew\t" + rest.splitlines()[0].rpartition(b"\t")[2] + b"\n" + rest)
    try:  # the row above moves all others, and half of them have the label of their neighbour
        assert "changed since it was audited" in refused("apply", audited["findings"], "--first", "1", "-o", "never")
    finally:
        (work / "noisy.tsv").write_bytes(noisy)
    assert "this is an input" in refused("apply", audited["findings"], "--all", "-o", ".", "--overwrite")
    assert not (work / "never").exists()
