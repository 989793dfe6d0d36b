"""`nlpctl serve`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nlpctl.cli.options import (
    EngineOption,
    MinConfidenceOption,
    ModelArgument,
    PrecisionOption,
    engine_overrides,
    load_command_recipe,
)
from nlpctl.config.positions import located


def serve(
    ctx: typer.Context,
    model: ModelArgument,
    host: Annotated[str, typer.Option("--host", help="Address to listen on; 0.0.0.0: all addresses.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="Port to listen on; 0: any free port.")] = 8000,
    engine: EngineOption = None,
    precision: PrecisionOption = None,
    min_confidence: MinConfidenceOption = None,
    workers: Annotated[
        int, typer.Option("--workers", metavar="N", help="Processes that answer, each with its share of the machine.")
    ] = 1,
    batch_size: Annotated[int, typer.Option("--batch-size", help="Rows per batch, at most.")] = 32,
    batch_wait: Annotated[
        float, typer.Option("--batch-wait", metavar="MS", help="How long an idle engine waits for a batch to fill.")
    ] = 0.0,
    queue: Annotated[
        int, typer.Option("--queue", metavar="ROWS", help="Length of the queue in rows; further requests get 503.")
    ] = 512,
    max_wait: Annotated[
        float, typer.Option("--max-wait", metavar="SECONDS", help="Requests that would wait longer get 503.")
    ] = 2.0,
    max_rows: Annotated[int, typer.Option("--max-rows", metavar="ROWS", help="Rows per request, at most.")] = 256,
    max_characters: Annotated[
        int, typer.Option("--max-characters", metavar="N", help="Characters of all rows of a request, at most.")
    ] = 200_000,
    max_body: Annotated[int, typer.Option("--max-body", metavar="BYTES", help="Size of a request.")] = 1_000_000,
    drain: Annotated[
        float, typer.Option("--drain", metavar="SECONDS", help="How long to keep listening after SIGTERM.")
    ] = 1.0,
    max_connections: Annotated[
        int, typer.Option("--max-connections", metavar="N", help="Open connections, at most; further ones get 503.")
    ] = 2048,
    api_key_file: Annotated[
        Path | None,
        typer.Option("--api-key-file", metavar="FILE", help="API keys, one per line; clients must send one of them."),
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option("--tls-cert", metavar="FILE", help="Certificate with its chain, in PEM form: HTTPS.")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option("--tls-key", metavar="FILE", help="Its private key.")] = None,
) -> None:
    """Serve a trained model over HTTP: JSON in, JSON out.

    POST /predict takes a row ({"text": ...}) or a list of rows, with the keys of a jsonl line, and returns what
    `nlpctl predict` writes. GET /health and /health/ready are for load balancers, GET /metrics for Prometheus.

    Examples:

      nlpctl serve outputs/quickstart/export

      nlpctl serve outputs/quickstart/export --host 0.0.0.0 --port 80 --engine onnxruntime --precision int8

      nlpctl serve outputs/quickstart/export --workers 4

      nlpctl serve outputs/quickstart/export --api-key-file keys.txt --tls-cert cert.pem --tls-key key.pem
    """
    from nlpctl.runtime.interrupt import sigterm_waits

    with sigterm_waits():  # NumPy's threads begin here, and must not take the signal during Paddle's import
        from nlpctl.serve.secrets import read_secrets, warn_of_open_files
        from nlpctl.serve.serve import serve as run_service
        from nlpctl.serve.settings import ServeSettings

    settings = ServeSettings(
        host=host,
        port=port,
        workers=workers,
        batch_size=batch_size,
        batch_wait=batch_wait / 1000,
        queue=queue,
        max_wait=max_wait,
        max_rows=max_rows,
        max_characters=max_characters,
        max_body=max_body,
        max_connections=max_connections,
        drain=drain,
        api_key_file=api_key_file,
        tls_cert=tls_cert,
        tls_key=tls_key,
    )
    secrets = read_secrets(settings)
    warn_of_open_files(settings)
    recipe = load_command_recipe(model, ctx, engine_overrides(engine, precision, min_confidence), purpose="apply")

    with located(recipe):
        run_service(recipe, settings, secrets)
