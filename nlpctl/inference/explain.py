"""`nlpctl explain`: what each token of a text contributes to its label."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nlpctl import console
from nlpctl.config.schema import Recipe
from nlpctl.config.tasks import known_tasks, task_info
from nlpctl.data.predict_input import PredictInput
from nlpctl.data.readers.row import BadRow
from nlpctl.data.text.truncated import warn_of_truncated
from nlpctl.errors import Problem, UserError
from nlpctl.files import write_json_atomic, write_text_atomic, writing
from nlpctl.inference.open_model import find_network
from nlpctl.inference.predict import check_bad_row, refuse_output
from nlpctl.layout import JSON_LINES
from nlpctl.names import did_you_mean
from nlpctl.report.html import Html, MarkedPart, element, marked_text
from nlpctl.report.language import later, say, say_counted, say_each
from nlpctl.report.model import Folded, Part, Report, Section, Table
from nlpctl.report.page import draw, html_page, names_page
from nlpctl.runtime.interrupt import sigterm_interrupts
from nlpctl.runtime.process import set_up_process

if TYPE_CHECKING:
    from nlpctl.engines.trained import TrainedModel
    from nlpctl.inference.attribution import Baseline, Explained, Explanation, Method


# -- explanations as one HTML page -----------------------------------------------------------------

STRONGEST = 5  # tokens listed per text
_METHODS = {
    "integrated_gradients": later(
        "The contributions are integrated gradients: their sum is the log odds of the label for "
        "the text minus those for a baseline, in which every token is replaced."
    ),
    "occlusion": later("The contribution of a token is what the log odds of the label lose when it is replaced."),
}


def explanations_page(rows: Sequence[Explained], name: str) -> str:
    """The text of the page; `name` says which model."""
    sides = MarkedPart(say("supports the label"), 1, True), MarkedPart(say("opposes the label"), -1, False)
    methods = dict.fromkeys(row.method for row in rows)
    key: list[Part] = [marked_text(sides, 1), *(say(_METHODS[method]) for method in methods)]
    key.append(
        say(
            "Log odds of 0 are a probability of 0.5; 2 is 0.88; 4 is 0.98. They are those of the network; the "
            "probability beside a label is that of answers, which calibration may have changed."
        )
    )
    texts = [_row(*each) for each in enumerate(rows, 1)]
    sections = [Section(say("How to read this"), key), Section(say("Texts"), texts)]
    lead = say("{}, explained for {}", say_counted(len(rows), "texts"), name)
    return html_page(Report(say("Evidence for the label"), lead, sections))


def _row(number: int, row: Explained) -> Html:
    contributions = [[element("span", token.text), token.contribution] for token in row.tokens]
    most = max((abs(token.contribution) for token in row.tokens), default=0.0)
    return element(
        "article",
        element("h3", f"{number}. {row.label} ", element("span", f"{row.probability:.3f}", class_="faint")),
        marked_text([MarkedPart(token.text, token.contribution, token.joined) for token in row.tokens], most),
        *_lines(row),
        draw(Folded(say("all tokens"), [Table(say_each("token", "contribution"), contributions)])),
    )


def _lines(row: Explained) -> Iterator[Html]:
    for side, tokens in zip((say("For: {}"), say("Against: {}")), row.strongest(STRONGEST), strict=True):
        if tokens:
            listed = say(", ").join(f"{token.text} {token.contribution:+.3g}" for token in tokens)
            yield element("p", side.format(listed))
    explanation = row.explanation
    if explanation.baseline is not None:
        equation = say(
            "Log odds {:+.3f} = {:+.3f} (baseline) {:+.3f} (contributions) {:+.3f} (not accounted for)",
            explanation.log_odds,
            explanation.baseline,
            explanation.contributions.sum(),
            -explanation.gap,
        )
        yield element("p", equation, class_="faint")



EXCERPT = 40  # characters of a text in a warning
PATIENCE = 30.0  # seconds of explaining from which the time is told
FASTER = 2.0  # times as fast as the method that was chosen: another one is then named


def explain(
    recipe: Recipe,
    source: PredictInput,
    *,
    method: Method = "integrated_gradients",
    label: str | None = None,
    baseline: Baseline | None = None,
) -> Iterator[Explained]:
    """Explain every row of `source`, in order: for `label`, or the predicted one (of several, the most likely).

    See inference/attribution.py for the methods and what `baseline` may be. UserError: the task is not classification,
    the label is unknown, or a row is bad (data.on_bad_row: skip leaves it out).
    """
    if not task_info(recipe.task).explainable:
        message = f"{recipe.task} does not label whole texts"
        hint = f"explain supports {', '.join(task.name for task in known_tasks() if task.explainable)}"
        raise UserError(message, where=recipe.where("task"), hint=hint)
    model_source = find_network(recipe)
    rows = source.check() if source.rereadable else None
    setup = set_up_process(recipe)
    from nlpctl.engines.trained import open_network

    model = open_network(recipe, setup, model_source)
    names = model.task.labels.names
    if label is not None and label not in names:
        hint = f"one of {', '.join(names[:20])}"
        raise UserError(f"there is no label {label!r}{did_you_mean(label, names)}", where="@[label]", hint=hint)
    return _explanations(recipe, model, source, method, label, baseline, SlowTexts(method, rows))


def _explanations(
    recipe: Recipe,
    model: TrainedModel,
    source: PredictInput,
    method: Method,
    label: str | None,
    baseline: Baseline | None,
    slow: SlowTexts,
) -> Iterator[Explained]:
    from nlpctl.data.batches.collate import failures_as_errors
    from nlpctl.data.text.piece_spans import unknown_texts
    from nlpctl.engines.engine import DygraphPredictor
    from nlpctl.engines.pipeline import refuse_overflow
    from nlpctl.inference.attribution import Explained, Explainer, tokens_of
    from nlpctl.tasks.sequence_classification import TextClassification

    task, tokenizer = model.task, model.encoder.tokenizer
    assert isinstance(task, TextClassification), "only these tasks are explainable"
    assert isinstance(model.predictor, DygraphPredictor), "open_network has opened it"
    collate = task.collator(model.encoder, labelled=False)
    explainer, read, truncated = Explainer(model.predictor.network, tokenizer, method, baseline), 0, 0
    with sigterm_interrupts():
        for row, example in enumerate(source.rows(), 1):
            if isinstance(example, BadRow):
                check_bad_row(example, recipe.data.on_bad_row)
                continue
            with failures_as_errors():
                encodings = collate.encodings([example])
                batch = collate.arrays([example], encodings)
            read, truncated = read + 1, truncated + encodings[0].truncated
            outputs = model.predictor.outputs(batch)
            refuse_overflow(outputs)
            predictions = task.predictions(outputs, [example])
            answer, shares = task.answer(example, predictions), task.label_probabilities(predictions)
            # Of several labels the most likely is explained.
            name = label or answer.get("label") or max(shares, key=lambda each: shares[each])
            number = task.labels.names.index(name)
            slow.begin()
            explanation = explainer.explain(batch, partial(task.log_odds, label=number))
            if not explanation.complete:
                console.warn(_incomplete(row, source.task_rows.input_columns(example), explanation))
            ids = batch["input_ids"][0]
            unknown = unknown_texts(ids.tolist(), source.task_rows.passages(example).values(), model.encoder)
            tokens = tokens_of(ids, explanation.contributions, tokenizer, explainer.special, unknown)
            slow.end(explanation, len(tokens))
            given = source.task_rows.input_columns(example)
            yield Explained(given, answer, name, shares[name], method, tuple(tokens), explanation)
    warn_of_truncated(recipe, truncated, read)


class SlowTexts:
    """Tells once how long a text takes to explain, where all of them take long, and which method would be faster.

    `rows`: how many there are; None if nobody knows. `clock`: in seconds.
    """

    def __init__(self, method: Method, rows: int | None, clock: Callable[[], float] = time.perf_counter):
        self._method, self._rows, self._clock = method, rows, clock
        self._started = 0.0
        self._texts, self._seconds, self._passes, self._others, self._told = -1, 0.0, 0, 0, False

    def begin(self) -> None:
        """A text is to be explained."""
        self._started = self._clock()

    def end(self, explanation: Explanation, tokens: int) -> None:
        """A text of so many tokens is explained. The first, for which much is prepared, does not count."""
        from nlpctl.inference.attribution import GRADIENT, STEPS

        self._texts += 1
        if self._told or not self._texts:
            return
        self._seconds += self._clock() - self._started
        self._passes += explanation.passes
        self._others += GRADIENT * STEPS if self._method == "occlusion" else tokens
        each = self._seconds / self._texts
        total = self._seconds if self._rows is None else each * self._rows
        if total < PATIENCE:
            return
        self._told = True
        all_of_them = "" if self._rows is None else f", the {self._rows:,} of them {console.duration(total)}"
        other = "integrated_gradients" if self._method == "occlusion" else "occlusion"
        faster = self._passes / max(self._others, 1)
        offer = f"; @[method={other}] is about {faster:.0f} times as fast" if faster >= FASTER else ""
        console.note(f"a text takes {each:.1f} s{all_of_them}{offer}")


def _incomplete(row: int, given: dict[str, Any], explanation: Explanation) -> str:
    """What to tell of contributions that do not add up: of which row, by how much, and what to do."""
    text = " / ".join(str(value) for value in given.values())
    assert explanation.baseline is not None, "without, contributions are complete"
    excerpt = text if len(text) <= EXCERPT else text[: EXCERPT - 3] + "..."
    message = (
        f"row {row} ({excerpt}): the contributions add up to {explanation.contributions.sum():.3f} in place of "
        f"{explanation.log_odds - explanation.baseline:.3f}, even with {explanation.steps} steps"
    )
    hint = "read them as an order of the tokens, not as amounts; or take another @[baseline], or @[method=occlusion]"
    return str(Problem(message, hint=hint))


def check_output(output: Path, overwrite: bool) -> None:
    """UserError if the file exists and must not be replaced, or its suffix tells no form of explanations."""
    refuse_output(output, overwrite)
    if not names_page(output) and output.suffix.lower() not in (".json", *JSON_LINES):
        message = f"explanations are not written as {output.suffix or 'a file without a suffix'}"
        raise UserError(message, str(output), "end the name in .html for a page, or in .jsonl or .json")


def write_explanations(rows: Sequence[Explained], name: str, output: Path, *, overwrite: bool = False) -> None:
    """The explanations as the suffix of `output` says: one HTML page that needs no network, a JSON object per line, or
    a list of these objects. UserError as of `check_output`."""
    check_output(output, overwrite)
    suffix, values = output.suffix.lower(), console.json_ready([row.to_json() for row in rows])
    with writing(output, "name another file: @[output=FILE.html]"):
        if suffix == ".json":
            write_json_atomic(output, values)
        elif suffix in JSON_LINES:
            write_text_atomic(output, "".join(f"{json.dumps(each, ensure_ascii=False)}\n" for each in values))
        else:
            write_text_atomic(output, explanations_page(rows, name))
