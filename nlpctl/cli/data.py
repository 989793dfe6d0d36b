"""`nlpctl data`: inspect, show, split, augment, retag, audit and correct data."""

from __future__ import annotations

import math
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nlpctl import console
from nlpctl.cli.options import ModelArgument, RecipeCommand, flags_of, load_command_recipe, load_data_recipe
from nlpctl.cli.output import Json, LanguageOption, give
from nlpctl.cli.predict import check_format
from nlpctl.config.positions import located
from nlpctl.config.schema import SPLITS
from nlpctl.console import display
from nlpctl.errors import UserError
from nlpctl.names import counted, full_width_signs
from nlpctl.report.language import say, say_counted, say_each
from nlpctl.report.model import Table, percent
from nlpctl.report.text import show_table

if TYPE_CHECKING:
    from nlpctl.datatools.wrong_labels import Worth

MEASURES = ("margin", "entropy")
METHODS = ("synonym", "insert", "swap", "delete")
TEXT_WIDTH = 60  # characters of a text in a table
ROWS_PER_TABLE = 5
ROWS_TO_LABEL = 10  # in the table of `data next`
SETTINGS = {"help_option_names": ["-h", "--help"]}
RecipeArgument = Annotated[
    str, typer.Argument(metavar="RECIPE", help="Recipe, run directory, model folder, or the name of a shipped recipe.")
]
FileArgument = Annotated[
    str | None, typer.Argument(metavar="[FILE]", help="A data file, used instead of the recipe's data.")
]
ToOption = Annotated[
    str, typer.Option("--to", metavar="FORMAT", help="Format of FILE: jsonl, label_studio or doccano.")
]

app = typer.Typer(
    name="data",
    help="Inspect data, show its tokens, split, augment and retag it; find wrong labels; tell what to label next.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
    context_settings=SETTINGS,
)

# The help lists the commands in the order in which they stand here.

# -- what to label next, and the formats of labelling programs ----------------------------------


@app.command("next", cls=RecipeCommand, context_settings=SETTINGS)
def next_rows(
    ctx: typer.Context,
    model: ModelArgument,
    input: Annotated[list[str], typer.Argument(metavar="UNLABELLED...", help="Files of rows without labels.")],
    count: Annotated[int, typer.Option("-n", "--rows", min=1, metavar="N", help="How many rows to choose.")] = 200,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="File of the chosen rows.")
    ] = None,
    measure: Annotated[str, typer.Option("--by", metavar="margin|entropy", help="How doubt is measured.")] = "margin",
    pool: Annotated[
        int | None,
        typer.Option(
            "--pool",
            min=1,
            metavar="N",
            help="Choose rows unlike each other among the N most uncertain ones; default: 10 times -n.",
        ),
    ] = None,
    format: Annotated[str, typer.Option("--format", help="Format of UNLABELLED, as in predict.")] = "auto",
    to: ToOption = "jsonl",
    batch_size: Annotated[int, typer.Option("--batch-size", min=1, help="Rows per batch.")] = 64,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file.")] = False,
    json: Json = False,
) -> None:
    """Choose the rows whose labels would teach the model most.

    Of the rows that the model is most unsure of, those are chosen that are unlike each other, by the vectors with which
    the network decides. Rows that are in the labelled data already are left out. The file has the rows with an empty
    column for the label: fill it in, and add the file to data.train. Tasks for Label Studio begin with what the model
    answers, and come with a labelling interface (.xml).

    Examples:

      nlpctl data next outputs/quickstart reviews.txt -n 100 -o to_label.jsonl

      nlpctl data next outputs/quickstart reviews/*.jsonl.gz -n 100 --by entropy --pool 100

      nlpctl data next outputs/quickstart reviews.txt -n 100 -o tasks.json --to label_studio
    """
    check_format(format)
    if measure not in MEASURES:
        raise UserError(f"there is no measure {measure!r}", where="--by", hint=f"one of {', '.join(MEASURES)}")
    recipe = load_command_recipe(model, ctx, purpose="apply")
    from nlpctl.data.inspection.report import shortened
    from nlpctl.datatools.next import next_rows as choose
    from nlpctl.inference.predict import input_of

    with located(recipe):
        source = input_of(recipe, input, format)
        choice = choose(
            recipe, source, count, output,
            kind=to, measure=measure, pool=pool, batch_size=batch_size, overwrite=overwrite,
        )  # fmt: skip
    give(choice.to_json())
    counts = [f"{counted(choice.rows, 'rows')} read"]
    if choice.known:
        counts.append(f"{choice.known:,} left out, which are labelled already")
    if choice.bad:
        counts.append(f"{choice.bad:,} bad")
    console.note(", ".join(counts))
    rows = []
    for row in choice.chosen[:ROWS_TO_LABEL]:
        texts = [shortened(text, TEXT_WIDTH) for text in (row.text, row.answer_text)]
        rows.append([display(row.where), *texts, row.confidence, row.stands_for])
    if rows:
        show_table(Table(say_each("row", "text", "predicted", "confidence", "stands for"), rows))
    if output is None and not json and len(choice.chosen) > ROWS_TO_LABEL:
        console.note(say("and {:,} more: @[output=FILE] writes all of them", len(choice.chosen) - ROWS_TO_LABEL))
    if len(choice.chosen) < count:
        console.warn(f"only {counted(len(choice.chosen), 'rows')} to choose from")
    if output is not None:
        console.note(say("{} to label: {}", say_counted(len(choice.chosen), "rows"), output))
    if choice.interface is not None:
        console.note(say("labelling interface: {}", display(choice.interface)))


@app.command("convert", cls=RecipeCommand, context_settings=SETTINGS)
def convert(
    ctx: typer.Context,
    recipe: Annotated[str, typer.Argument(metavar="RECIPE", help="Recipe, run, or the name of a shipped recipe.")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="File to write.")],
    file: FileArgument = None,
    to: ToOption = "jsonl",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file.")] = False,
    json: Json = False,
) -> None:
    """Write labelled rows for Label Studio or doccano, or what these export as jsonl.

    The training rows, or those of FILE, with their labels as annotations. Beside tasks for Label Studio stands the
    labelling interface (.xml) that they are for.

    Examples:

      nlpctl data convert my.yaml -o tasks.json --to label_studio

      nlpctl data convert my.yaml exported.json -o rows.jsonl
    """
    resolved = load_data_recipe(recipe, file, ctx)
    from nlpctl.datatools.convert import convert as write

    with located(resolved):
        done = write(resolved, output, to, overwrite=overwrite)
    give(done.to_json())
    console.note(f"{counted(done.rows, 'rows')}: {display(done.output)}")
    if done.interface is not None:
        console.note(say("labelling interface: {}", display(done.interface)))


# -- a look at data --------------------------------------------------------------------------


@app.command("inspect", cls=RecipeCommand, context_settings=SETTINGS)
def inspect(
    ctx: typer.Context,
    recipe: RecipeArgument,
    file: FileArgument = None,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write one HTML page with plots.")] = None,
    language: LanguageOption = None,
    json: Json = False,
    rows: Annotated[
        int | None, typer.Option("--rows", min=1, metavar="N", help="Look at the first N rows of each split only.")
    ] = None,
    estimate: Annotated[
        bool, typer.Option("--estimate", help="Estimate tokens from characters and words: no tokenizer is loaded.")
    ] = False,
    shown: Annotated[int, typer.Option("--shown", min=1, metavar="N", help="Rows to list per finding.")] = 20,
) -> None:
    """Inspect the data before training.

    Shows rows per label, lengths in tokens, rows cut by max_seq_length, repeated rows, rows of dev and test that are
    in train, texts with conflicting labels, and suspicious rows by file:line.

    Examples:

      nlpctl data inspect quickstart

      nlpctl data inspect my.yaml --html data.html

      nlpctl data inspect my.yaml more.tsv --json
    """
    resolved = load_data_recipe(recipe, file, ctx)
    from nlpctl.datatools.inspect import format_inspection, inspect_data, refuse_page, write_page

    if html is not None:
        refuse_page(html)  # before the data is read, which may take minutes
    with located(resolved):
        inspection = inspect_data(resolved, most=rows, estimate=estimate, shown=shown)
    if html is not None:
        write_page(inspection, file or recipe, html)
        console.note(say("page: {}", html))
    if json:
        give(inspection.to_json())
        return
    tables, advice = format_inspection(inspection, min(shown, ROWS_PER_TABLE), TEXT_WIDTH)
    for table in tables:
        show_table(table)
        console.result("")
    for message in advice:
        console.result(f"* {message}")


@app.command("show", cls=RecipeCommand, context_settings=SETTINGS)
def show(
    ctx: typer.Context,
    recipe: RecipeArgument,
    file: FileArgument = None,
    rows: Annotated[int, typer.Option("-n", "--rows", min=1, metavar="N", help="Show the first N rows.")] = 5,
    split: Annotated[str | None, typer.Option("--split", help="train, dev or test.")] = None,
    json: Json = False,
) -> None:
    """Show what the tokenizer makes of the first rows.

    For each row: the text, its tokens, their ids and types, and the labels, of each token where the task has them. Then
    the shape of the first training batch and its share of padding. Functions of the recipe (data.map, data.filter) are
    applied.

    Examples:

      nlpctl data show quickstart -n 2

      nlpctl data show my.yaml --split dev --json
    """
    resolved = load_data_recipe(recipe, file, ctx)
    from nlpctl.datatools.show import format_rows, show_rows

    if split is not None and split not in SPLITS:
        raise UserError(f"there is no split {split!r}", where="--split", hint=f"one of {', '.join(SPLITS)}")
    with located(resolved):
        content = show_rows(resolved, split, rows)
    if content["bad_rows"]:
        console.warn(f"{counted(content['bad_rows'], 'bad rows')} left out; `nlpctl data inspect` lists them")
    if json:
        give(content)
        return
    for line in format_rows(content, shutil.get_terminal_size((100, 24)).columns):
        console.result(line)


# -- new files from old ones -----------------------------------------------------------------


@app.command("split", cls=RecipeCommand, context_settings=SETTINGS)
def split(
    ctx: typer.Context,
    recipe: RecipeArgument,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FOLDER", help="Folder for the new files.")],
    file: FileArgument = None,
    dev: Annotated[float, typer.Option("--dev", min=0, metavar="SHARE", help="Share or rows of dev.")] = 0.1,
    test: Annotated[
        float, typer.Option("--test", min=0, metavar="SHARE", help="Share or rows of test.")
    ] = 0.1,
    train: Annotated[
        float | None, typer.Option("--train", min=0, metavar="SHARE", help="Share or rows of train; default: the rest.")
    ] = None,
    group_by: Annotated[
        str | None, typer.Option("--group-by", metavar="COLUMN", help="Rows with the same value stay together.")
    ] = None,
    near: Annotated[bool, typer.Option("--near", help="Near-duplicate texts stay together.")] = False,
    write: Annotated[bool, typer.Option("--write", help="Name the new files in the recipe. Comments stay.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace existing files.")] = False,
    json: Json = False,
) -> None:
    """Split the training data into train, dev and test.

    The split is stratified by label. Rows with the same texts stay together, and so do the questions about one text.
    The new files have the format of the old ones, which stay unchanged; another --seed N gives another split.

    Examples:

      nlpctl data split my.yaml -o data

      nlpctl data split my.yaml -o data --write

      nlpctl data split my.yaml all.tsv -o data --dev 500 --test 0.2 --seed 7

      nlpctl data split my.yaml -o quarter --train 0.25 --dev 0.1 --test 0
    """
    resolved = load_data_recipe(recipe, file, ctx)
    from nlpctl.config.recipe_text import as_yaml, in_recipe, refuse_rewriting, write_files
    from nlpctl.data.open_split import has_split
    from nlpctl.datatools.split import split_data

    shares = {"dev": dev, "test": test, **({} if train is None else {"train": train})}
    with located(resolved):
        if write:
            refuse_rewriting(resolved)
        made = split_data(resolved, output, shares, group_by=group_by, near=near, overwrite=overwrite)
        does_with_dev = write and write_files(resolved, made.files, made.rows)
    if json:
        give({"files": made.files, "rows": made.rows, "labels": made.labels})
        return
    names = list(dict.fromkeys(name for counts in made.labels.values() for name in counts))
    rows = [[say("(rows)"), *made.rows.values()]]
    rows += [[name, *(made.labels[part].get(name, 0) for part in made.files)] for name in names]
    show_table(Table([say("label"), *made.files], rows))
    others = [part for part in ("dev", "test") if has_split(resolved.data, part)]
    if file is None and others:
        reason = f"only data.train was split: the rows that the recipe names for {' and '.join(others)} are in no part"
        console.warn(f"{reason}\n  -> `nlpctl data split RECIPE FILE` splits a file of all rows")
    if "dev" in made.files and resolved.training.evaluation_strategy == "no" and not does_with_dev:
        where = resolved.where("training.evaluation_strategy")
        keys = "it and save_strategy to epoch, and load_best_model_at_end to true"
        console.note(f"{where}: is no, so training does not look at the dev rows; to select by them set {keys}")
    if write and resolved.path is not None:
        console.note(say("{} names the new files", display(resolved.path)))
    else:
        console.note(say("in the recipe, under data:"))
    for part, path in made.files.items():
        console.note(f"  {part}: {as_yaml(in_recipe(resolved, path))}")


@app.command("augment", cls=RecipeCommand, context_settings=SETTINGS)
def augment(
    ctx: typer.Context,
    recipe: RecipeArgument,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="File of the new rows (jsonl).")],
    file: FileArgument = None,
    method: Annotated[str, typer.Option("--method", help="synonym, insert, swap or delete.")] = "swap",
    copies: Annotated[int, typer.Option("--copies", min=1, help="New rows per row, at most.")] = 1,
    share: Annotated[
        float, typer.Option("--share", min=0.01, max=1, help="Share of a text's words to change, up to 0.3.")
    ] = 0.1,
    synonyms: Annotated[
        Path | None,
        typer.Option("--synonyms", metavar="FILE", help='{"word": ["other"]} in JSON; default: downloaded.'),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file.")] = False,
    json: Json = False,
) -> None:
    """Augment training rows: replace, insert, swap or delete words of Chinese text.

    The new file holds the new rows only: train on both with data.train: [old, new]. Another --seed N gives other rows.

    Examples:

      nlpctl data augment quickstart -o more.jsonl --method delete

      nlpctl data augment my.yaml rare.tsv -o more.jsonl --method synonym --synonyms mine.json --copies 3
    """
    if method not in METHODS:
        raise UserError(f"there is no method {method!r}", where="--method", hint=f"one of {', '.join(METHODS)}")
    resolved = load_data_recipe(recipe, file, ctx)
    from nlpctl.datatools.augment import augment_data

    with located(resolved):
        made = augment_data(
            resolved, output, method, copies=copies, share=share, synonyms=synonyms, overwrite=overwrite
        )
    give({"output": output, "rows": made.rows, "new": made.new})
    console.note(say("{} read, {:,} new ones -> {}", say_counted(made.rows, "rows"), made.new, output))
    if resolved.data.map:  # the old file's rows pass data.map, the new ones must not
        convert = "nlpctl data convert RECIPE -o old.jsonl"
        console.note(say("to train on both: {}, of dev and test too (RECIPE FILE)", convert))
        console.note(say("then, in a recipe without data.map, under data: train: [old.jsonl, {}]", output))
    else:
        console.note(say("in the recipe, under data: train: [the old file, {}]", output))


@app.command("retag", cls=RecipeCommand, context_settings=SETTINGS)
def retag(
    ctx: typer.Context,
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A lexical analyser: run directory or model folder, such as a LAC.")
    ],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Sentences with tagged entities, as for training.")],
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help="File to write; JSON lines if it ends in .jsonl.")
    ],
    renamed: Annotated[
        list[str] | None,
        typer.Option("--map", metavar="TYPE=TYPE", help="Write a type of FILE as another: PERSON=PER; repeatable."),
    ] = None,
    plain: Annotated[
        list[str] | None,
        typer.Option(
            "--plain",
            metavar="TYPE=TYPE",
            help="What a name of the model becomes where FILE has none; default: PER=nr, LOC=ns, ORG=nt; repeatable.",
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file.")] = False,
    json: Json = False,
) -> None:
    """Put the entities of a file among the words of a lexical analyser.

    A file that tags entities alone would teach an analyser that all else is nothing. The new file has the words and
    parts of speech that MODEL finds in the same sentences, and the entities of FILE in place of its own: training MODEL
    on it teaches the entities and keeps the rest. Persons, places and organisations that FILE does not have become
    plain names, if FILE tags such entities at all.

    Examples:

      nlpctl data retag outputs/lac train.txt -o lac/train.txt

      nlpctl data retag outputs/lac train.txt -o lac/train.txt --map PERSON=PER --plain TIME=t
    """
    new_types, plain_types = _pairs(renamed, "--map"), _pairs(plain, "--plain")
    resolved = load_command_recipe(model, ctx, purpose="apply")
    from nlpctl.datatools.retag import retag as retag_file

    with located(resolved):
        done = retag_file(resolved, file, output, renamed=new_types, plain=plain_types, overwrite=overwrite)
    give({"output": output, **done.to_json()})
    for line in done.lines():
        console.note(line)
    console.note(say("tagged sentences: {}", output))


def _pairs(words: list[str] | None, flag: str) -> dict[str, str]:
    """{left: right} of each TYPE=TYPE. UserError, naming `flag`, for a word of another form."""
    pairs = {}
    for word in words or ():
        left, equals, right = word.partition("=")
        if not (left and equals and right):
            raise UserError(f"{word!r} is not of the form TYPE=TYPE", flag, f"{flag} PERSON=PER")
        pairs[left] = right
    return pairs


# -- how many more rows would help -----------------------------------------------------------


@app.command("curve", cls=RecipeCommand, context_settings=SETTINGS)
def curve(
    ctx: typer.Context,
    recipe: RecipeArgument,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FOLDER", help="For the runs; default: OUTPUT_DIR-curve.")
    ] = None,
    shares: Annotated[
        str, typer.Option("--shares", metavar="A,B,...", help="Shares of the training rows, four or more.")
    ] = "0.0625,0.125,0.25,0.5,1",
    repeats: Annotated[int, typer.Option("--repeats", min=1, max=50, metavar="N", help="Runs on each share.")] = 2,
    resume: Annotated[bool, typer.Option("--resume", help="Keep finished runs and go on.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the existing runs.")] = False,
    json: Json = False,
) -> None:
    """Train on growing shares of the rows, and tell how many more rows bring one more point.

    A power law is fitted to the scores on dev (or test), with intervals. Where the runs cannot tell, this is said.

    Examples:

      nlpctl data curve my.yaml

      nlpctl data curve my.yaml --shares 0.05,0.1,0.2,0.4 --repeats 3
    """
    numbers = []
    for word in shares.split(","):
        try:
            numbers.append(float(word))
        except ValueError:
            hint = "--shares 0.1,0.25,0.5,1" + full_width_signs(word)
            raise UserError(f"{word!r} is not a number", "--shares", hint) from None
    resolved = load_command_recipe(recipe, ctx)
    from nlpctl.experiments.learning_curve import learning_curve
    from nlpctl.layout import REPORT

    with located(resolved):
        result = learning_curve(
            resolved, output, shares=numbers, repeats=repeats, resume=resume, overwrite=overwrite, command=sys.argv
        )
    if json:
        give(result.to_json())
        return
    rows = [
        [point.rows, point.rows / result.rows, len(point.runs), point.mean, point.fitted] for point in result.points
    ]
    score = say("{} on {}", result.metric, result.split)
    columns = [*say_each("rows", "share", "runs"), score, say("curve")]
    show_table(Table(columns, rows))
    console.result(say(result.told))
    console.note(say("report: {}", display(result.folder / REPORT)))


# -- wrong labels ----------------------------------------------------------------------------


@app.command("audit", cls=RecipeCommand, context_settings=SETTINGS)
def audit(
    ctx: typer.Context,
    folds: Annotated[Path, typer.Argument(metavar="FOLDS", help="Folder that nlpctl train RECIPE --folds N wrote.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FOLDER", help="For the findings; default: FOLDS/audit.")
    ] = None,
    shown: Annotated[int, typer.Option("--shown", min=1, metavar="N", help="Findings to show.")] = 10,
    language: LanguageOption = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the findings and their ticks.")] = False,
    json: Json = False,
) -> None:
    """Find labels that are probably wrong, by models that did not see the row.

    Also rows that say almost the same and have different labels, in one split or across splits, and texts that are like
    no others. FOLDER/findings.html is a page on which to tick what is right; findings.jsonl has a line per finding.
    `nlpctl data apply` writes corrected copies.

    Examples:

      nlpctl data audit outputs/folds
    """
    from nlpctl.datatools.audit import PAGE, format_label, format_text
    from nlpctl.datatools.audit import audit as run_audit
    from nlpctl.datatools.corrections import ELSEWHERE, FINDINGS

    result = run_audit(folds, output, overwrite=overwrite, given=flags_of(ctx))
    if json:
        give(result.to_json())
        return
    counts = result.counts.items()
    rows = [[say(kind), count, result.rows_of(kind), f"{result.share(kind):.2%}"] for kind, count in counts]
    title = say("{:,} rows; {}", result.rows, result.trust)
    show_table(Table(say_each("finding", "times", "rows", "share of the rows"), rows, title))
    first = []
    for each in result.findings[:shown]:
        labels = [format_label(each.given), format_label(each.proposed), each.given_probability]
        first.append([display(each.where), say(each.kind), format_text(each, TEXT_WIDTH), *labels])
    if first:
        columns = say_each("row", "finding", "text", "given", "proposed", "probability of the given")
        title = say("the first {:,} of {:,} findings", len(first), len(result.findings))
        show_table(Table(columns, first, title), apart=True)
    if result.findings and all(each.edit is None for each in result.findings):
        console.note(say("all of them: {}; correct the labels where they come from", display(result.folder / PAGE)))
        console.note(say("data apply cannot: they come from {}", ELSEWHERE))
        return
    console.note(say("tick them: {}", display(result.folder / PAGE)))
    if result.worth:
        console.note(_about_first(result.worth, display(result.folder / FINDINGS)))


def _about_first(worth: Sequence[Worth], findings: str) -> str:
    """Whether the first of the findings may be applied without a look at each, and how many."""
    from nlpctl.datatools.wrong_labels import MISTAKEN, RIGHT

    paying = [each for each in worth if each.pays]
    chosen = paying[-1] if paying else worth[0]
    most = percent(chosen.most)
    if chosen.most > MISTAKEN:
        return say(
            "@[first] does not pay: even where the models are surest they contradict {} of the labels; look at each",
            most,
        )
    needed = RIGHT, percent(chosen.needed), most
    if not paying:
        return say(
            "@[first] does not pay: of the first {:,} {:.0%} would be right only if {} of all labels were wrong, and "
            "at most {} are; look at each",
            chosen.first,
            *needed,
        )
    command = f"nlpctl data apply {shlex.quote(findings)} --first {chosen.first} -o FOLDER"
    return say(
        "or, once some at the top have proved right, the first {:,}: {}; {:.0%} of them are right if {} of all labels "
        "are wrong (at most {} are)",
        chosen.first,
        command,
        *needed,
    )


@app.command("apply", context_settings=SETTINGS)
def apply(
    findings: Annotated[
        Path, typer.Argument(metavar="FINDINGS", help="findings.jsonl of nlpctl data audit, or what its page saved.")
    ],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FOLDER", help="Folder for the corrected copies.")],
    everything: Annotated[
        bool, typer.Option("--all", help="Take all wrong labels, but for those that were refused.")
    ] = False,
    first: Annotated[
        int | None,
        typer.Option("--first", metavar="N", min=1, help="Take the first N wrong labels, the surest, likewise."),
    ] = None,
    drop: Annotated[bool, typer.Option("--drop", help="Leave the rows out instead of changing their labels.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace existing copies.")] = False,
    json: Json = False,
) -> None:
    """Write corrected copies of data files, by the findings that were ticked.

    The files themselves stay as they are. Of the copies everything but the ticked rows is the same, byte for byte.

    Examples:

      nlpctl data apply ticked.jsonl -o corrected

      nlpctl data apply outputs/folds/audit/findings.jsonl --first 100 -o corrected

      nlpctl data apply outputs/folds/audit/findings.jsonl --all --drop -o cleaned
    """
    from nlpctl.datatools.corrections import apply_findings

    if everything and first is not None:
        raise UserError("--all takes more than the first", "--first", "use --first N or --all")
    taken = math.inf if everything else first or 0
    done = apply_findings(findings, output, first=taken, drop=drop, overwrite=overwrite)
    give(done.to_json())
    changed, dropped = say_counted(done.changed, "labels"), say_counted(done.dropped, "rows")
    refused = say(", {:,} refused", done.refused) if done.refused else ""
    console.note(say("{} changed, {} left out{}", changed, dropped, refused))
    for copy in done.files.values():
        console.note(f"  {display(copy)}")
    console.note(say("to train on the copies, name them in section data of the recipe"))
