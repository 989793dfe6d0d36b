"""An MLflow server in memory: what a sender asks of one, and how it fails."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qsl, urlsplit


class Server:
    """`runs`: what was logged, by id. `fail_after`: batches that are taken before each answer is an error."""

    def __init__(self, artifacts: Path):
        self.artifacts, self.runs, self.batches = artifacts, {}, 0
        self.fail_after: int | None = None
        self.uri = ""

    def answer(self, path: str, asked: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        name = path.partition("/mlflow/")[2]
        if name == "experiments/get-by-name":
            return 200, {"experiment": {"experiment_id": "7", "name": asked["experiment_name"]}}
        if name == "runs/create":
            run_id = f"{len(self.runs):032x}"
            info = {"run_id": run_id, "run_uuid": run_id, "experiment_id": asked["experiment_id"], "status": "RUNNING"}
            info |= {"lifecycle_stage": "active", "artifact_uri": (self.artifacts / run_id).as_uri()}
            self.runs[run_id] = {"info": info, "metrics": [], "params": {}, "tags": {}, "inputs": []}
            return 200, {"run": self._shown(run_id)}
        run = self.runs.get(asked.get("run_id"))
        if run is None:
            return 404, {"error_code": "RESOURCE_DOES_NOT_EXIST", "message": path}
        if name == "runs/get":
            return 200, {"run": self._shown(asked["run_id"])}
        if name == "runs/log-batch":
            self.batches += 1
            run["metrics"] += asked.get("metrics", [])
            run["params"] |= {each["key"]: each["value"] for each in asked.get("params", [])}
            run["tags"] |= {each["key"]: each["value"] for each in asked.get("tags", [])}
            if self.fail_after is not None and self.batches > self.fail_after:
                return 400, {"error_code": "INTERNAL_ERROR", "message": "it was taken, and then the server died"}
            return 200, {}
        if name == "runs/log-inputs":
            run["inputs"] += asked["datasets"]
        elif name == "runs/update":
            run["info"] |= {key: asked[key] for key in ("status", "end_time") if key in asked}
            return 200, {"run_info": run["info"]}
        elif name == "runs/set-tag":
            run["tags"][asked["key"]] = asked["value"]
        elif name == "metrics/get-history":
            return 200, {"metrics": [each for each in run["metrics"] if each["key"] == asked["metric_key"]]}
        else:
            return 404, {"error_code": "ENDPOINT_NOT_FOUND", "message": path}
        return 200, {}

    def _shown(self, run_id: str) -> dict[str, Any]:
        run = self.runs[run_id]
        data = {kind: [{"key": key, "value": value} for key, value in run[kind].items()] for kind in ("params", "tags")}
        return {"info": run["info"], "data": data}


@contextmanager
def mlflow_server(artifacts: Path) -> Iterator[Server]:
    """A server that answers while the context lasts."""
    server = Server(artifacts)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._reply(dict(parse_qsl(urlsplit(self.path).query)))

        def do_POST(self) -> None:
            self._reply(json.loads(self.rfile.read(int(self.headers["Content-Length"])) or b"{}"))

        do_PATCH = do_POST

        def _reply(self, asked: dict[str, Any]) -> None:
            code, content = server.answer(urlsplit(self.path).path, asked)
            body = json.dumps(content).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *words: Any) -> None:
            pass

    listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.uri = f"http://127.0.0.1:{listener.server_address[1]}"
    Thread(target=listener.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        listener.shutdown()
        listener.server_close()
