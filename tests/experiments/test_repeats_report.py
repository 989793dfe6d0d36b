"""The mean and spread of the scores of several runs."""

from __future__ import annotations

from nlpctl.experiments.repeats_report import spread_tables, spreads
from nlpctl.layout import USER_SCORES


def test_numbers_of_rows_words_and_entities_are_no_scores() -> None:
    """A score of the user's own counts, also a whole one."""
    reports = [
        {"rows": 60, "words": 6000 + i, "entities": 950 + i, "f1": 0.5 + i / 10, USER_SCORES: {"errors": i}}
        for i in range(3)
    ]
    found = spreads({f"fold-{i}": {"dev": report} for i, report in enumerate(reports, 1)})
    assert list(found["dev"]) == ["f1", "errors"]
    assert found["dev"]["f1"].mean == 0.6


def test_a_score_that_some_runs_lack_tells_how_many_have_it() -> None:
    """As a correlation that is NaN."""
    reports = [{"f1": 0.5, USER_SCORES: {"correlation": value}} for value in (0.75, None, None)]
    (table,) = spread_tables(spreads({f"seed-{i}": {"dev": report} for i, report in enumerate(reports)}))
    assert (table.columns[-1], [row[-1] for row in table.rows]) == ("runs", [3, 1])
    (table,) = spread_tables(spreads({f"seed-{i}": {"dev": {"f1": 0.5}} for i in range(3)}))
    assert table.columns[-1] == "most"
