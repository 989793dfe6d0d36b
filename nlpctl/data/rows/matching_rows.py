"""Rows of text matching: two texts and whether they match."""

from __future__ import annotations

from nlpctl.data.rows.labels import LabelSet
from nlpctl.data.rows.text_rows import TextRows
from nlpctl.errors import UserError

# What a label says of a pair, where the recipe does not: (no match, match), compared in lower case.
OPPOSITES = (("0", "1"), ("false", "true"), ("no", "yes"), ("n", "y"))
_MATCHES = {word: meaning for pair in OPPOSITES for word, meaning in zip(pair, (False, True), strict=True)}


def is_match(label: str) -> bool:
    """Whether a label such as 1, 0, true or no means a match. ValueError for any other label."""
    if label.lower() not in _MATCHES:
        raise ValueError(f"bad label: {label!r}; a pair is 1 (the texts match) or 0")
    return _MATCHES[label.lower()]


def require_pair_column(text_pair: str | None, task: str) -> None:
    """UserError if the recipe names no column for the second text."""
    if text_pair is None:
        hint = "name it: data.columns.text_pair: COLUMN"
        raise UserError(f"{task} needs the column of the second text", where="data.columns.text_pair", hint=hint)


class MatchingRows(TextRows):
    """Rows of text matching: pairs with one of two labels, of which the second means a match."""

    symmetric = True

    def required(self, labelled: bool) -> tuple[str, ...]:
        require_pair_column(self.data.columns.text_pair, "text_matching")
        return super().required(labelled)

    def prepare_labels(self, labels: LabelSet) -> LabelSet:
        """The two labels, "no match" first. UserError: there are not two, or their meaning is unknown."""
        if len(labels) != 2:
            raise UserError(
                f"text_matching needs two labels, found {len(labels)}: {', '.join(labels.names[:10])}",
                where="data.labels" if self.data.labels is not None else "data.columns.label",
                hint="for more than two use task: sequence_classification, which reads pairs too",
            )
        if self.data.labels is not None:
            return labels
        try:
            # False sorts before True, so the second output is the probability of a match whatever order the file has.
            return LabelSet(sorted(labels, key=is_match))
        except ValueError:
            raise UserError(
                f"which of the labels {labels.names[0]!r} and {labels.names[1]!r} means that two texts match?",
                where="data.labels",
                hint="name the one for no match first, the one for a match second: data.labels: [different, same]",
            ) from None
