"""`nlpctl index`: a searchable index of texts, made with a semantic indexing model."""

from __future__ import annotations

import dataclasses
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from nlpctl import console
from nlpctl.cli.options import ClusterOption, ModelArgument, RecipeCommand, WorkersOption, load_command_recipe
from nlpctl.cli.output import Json, give, searching, tell_next
from nlpctl.cli.predict import check_format
from nlpctl.config.positions import located
from nlpctl.errors import UserError
from nlpctl.names import counted

if TYPE_CHECKING:
    from nlpctl.inference.index import IndexKind

KINDS = ("flat", "hnsw")
SETTINGS = {"help_option_names": ["-h", "--help"]}
BatchSize = Annotated[int, typer.Option("--batch-size", min=1, help="Texts per batch.")]
Format = Annotated[
    str, typer.Option("--format", help="text (a text per line), tsv, csv, jsonl, json; auto: by the ending.")
]

app = typer.Typer(
    name="index",
    help="Build an index of texts, and search it.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
    context_settings=SETTINGS,
)


@app.command("build", cls=RecipeCommand, context_settings=SETTINGS)
def build(
    ctx: typer.Context,
    model: ModelArgument,
    corpus: Annotated[
        list[str],
        typer.Argument(metavar="CORPUS...", help="Files of texts, folders, patterns; - reads standard input."),
    ],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FOLDER", help="Where to write the index.")],
    kind: Annotated[
        str, typer.Option("--kind", help="flat: exact; hnsw: approximate, faster from some 100,000 texts.")
    ] = "flat",
    format: Format = "auto",
    batch_size: BatchSize = 64,
    workers: WorkersOption = None,
    cluster: ClusterOption = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume an interrupted build by workers.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing index.")] = False,
    json: Json = False,
) -> None:
    """Index the distinct texts of a file by their vectors.

    Examples:

      nlpctl index build outputs/pairs corpus.txt -o outputs/pairs_index

      nlpctl index build outputs/pairs corpus.jsonl -o outputs/pairs_index --set data.columns.text=title

      nlpctl index build outputs/pairs corpora/*.txt.gz -o outputs/pairs_index --workers 8
    """
    check_format(format)
    if kind not in KINDS:
        raise UserError(f"there is no index kind {kind!r}", where="--kind", hint=f"one of {', '.join(KINDS)}")
    divided = workers is not None or cluster is not None
    if resume and not divided:
        raise UserError("only a build by workers can be resumed", "--resume", "give --workers N, or leave it out")
    recipe = load_command_recipe(model, ctx, purpose="embed")
    from nlpctl.data.text.truncated import warn_of_truncated
    from nlpctl.inference.index import build_index, open_texts
    from nlpctl.runtime.worker_slots import ParallelConfig

    with located(recipe):
        source = open_texts(recipe, corpus, format)
        parallel = ParallelConfig(workers, cluster, resume) if divided else None
        built = build_index(
            recipe, source, output,
            kind=cast("IndexKind", kind), batch_size=batch_size, overwrite=overwrite, parallel=parallel,
        )  # fmt: skip
    give({"index": output, **dataclasses.asdict(built)})
    counts = counted(built.texts, "texts")
    if built.repeated:
        counts += f", {counted(built.repeated, 'repeated texts')} left out"
    if built.bad_rows:
        counts += f", {counted(built.bad_rows, 'bad rows')} skipped"
    console.note(f"{counts} -> {output}")
    warn_of_truncated(recipe, built.truncated, built.texts + built.repeated)
    tell_next(searching(output))


@app.command("search", cls=RecipeCommand, context_settings=SETTINGS)
def search(
    ctx: typer.Context,
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="An index that `nlpctl index build` wrote.")],
    queries: Annotated[str, typer.Argument(metavar="QUERIES", help="File of queries; - reads standard input.")] = "-",
    k: Annotated[int, typer.Option("-k", min=1, help="Hits per query.")] = 10,
    format: Format = "auto",
    batch_size: BatchSize = 64,
    json: Json = False,
) -> None:
    """Find the nearest texts of every query: one JSON line each, in input order.

    Examples:

      nlpctl index search outputs/pairs_index queries.txt -k 5

      echo 怎么退款 | nlpctl index search outputs/pairs_index
    """
    check_format(format)
    from nlpctl.inference.index import index_recipe, open_texts, search_index

    recipe = load_command_recipe(index_recipe(folder), ctx, purpose="apply")
    with located(recipe):
        chunks = search_index(recipe, Path(folder), open_texts(recipe, [queries], format), k=k, batch_size=batch_size)
        if json:
            give({"answers": [answer for chunk in chunks for answer in chunk]})
            return
        for chunk in chunks:
            console.result("\n".join(dumps(answer, ensure_ascii=False) for answer in chunk))
