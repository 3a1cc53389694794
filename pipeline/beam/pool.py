"""`python -m pipeline.beam.pool --port 50000`: start Beam workers on request of an engine.

Replaces Beam's own pool, with four differences. A worker runs in the pool's Python, not in the
first `python` of PATH. A worker that cannot start is reported with its last output line. Two task
managers may share a pool, although both number their workers from 1. A request must have the
secret: a worker runs what the service that it is started for sends.
"""

import contextlib
import hmac
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any

import grpc

from pipeline.beam.fast_import import fn_messages, fn_services
from pipeline.console.arguments import Arguments
from pipeline.storage import places

STARTED = 60.0  # seconds allowed for a worker's imports
SECRET = "BERT_POOL_SECRET"  # environment: what a pool and those who may use it know


def secret() -> str:
    """Return the environment's secret, else that of this user, made in a file at the first use."""
    if value := os.environ.get(SECRET):
        return value
    path = places.user_cache() / "pool.secret"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent) as file:  # of this user alone
            file.write(secrets.token_hex(16))
            file.flush()
            with contextlib.suppress(FileExistsError):  # made by another process meanwhile
                os.link(file.name, path)
    return path.read_text()


def environment(place: str, key: str) -> str:
    """Return Beam's `environment_config` for a pool at HOST:PORT, or in JSON, with its secret."""
    settings: dict[str, Any] = json.loads(place) if place.startswith("{") else {"url": place}
    return json.dumps(settings | {"params": {"secret": key} | (settings.get("params") or {})})


class Pool(fn_services.BeamFnExternalWorkerPoolServicer):
    """Pool of worker processes, whose ids the engine assigns."""

    def __init__(self, key: str) -> None:
        self.key, self.lock = key, threading.Lock()
        self.workers: list[tuple[str, str, subprocess.Popen[bytes]]] = []  # id, peer, process

    def StartWorker(self, request: Any, context: Any) -> Any:
        """Start a worker; the response has the error if it ends before it is ready."""
        if not hmac.compare_digest(request.params["secret"].encode(), self.key.encode()):
            return fn_messages.StartWorkerResponse(
                error=f"a worker did not start in {sys.executable}: the secret of the pool is "
                f"another; set {SECRET} alike for the pool and for prepare"
            )
        with tempfile.NamedTemporaryFile(prefix="worker", suffix=".ready") as ready:
            words = [request.worker_id, request.control_endpoint.url, ready.name]
            command = [sys.executable, "-m", "pipeline.beam.worker", *words]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            output = deque[bytes](maxlen=1)  # read all along, so that the worker never blocks on a full pipe
            threading.Thread(target=output.extend, args=(process.stdout,), daemon=True).start()
            until = time.monotonic() + STARTED
            while process.poll() is None and time.monotonic() < until:
                if Path(ready.name).read_bytes():
                    with self.lock:
                        self.workers.append((request.worker_id, context.peer(), process))
                    return fn_messages.StartWorkerResponse()
                time.sleep(0.05)
        process.kill()
        last = b"".join(output).decode(errors="replace").strip() or f"exit {process.wait()}"
        return fn_messages.StartWorkerResponse(error=f"a worker did not start in {sys.executable}: {last}")

    def StopWorker(self, request: Any, context: Any) -> Any:
        """Stop the worker that the same peer started under this id.

        The request has no room for a secret, but the peer had it. One that connects again has another
        port; its worker ends by itself when the engine closes the connection.
        """
        with self.lock:
            for each in self.workers.copy():
                if each[:2] == (request.worker_id, context.peer()):
                    self.workers.remove(each)
                    stop(each[2])
        return fn_messages.StopWorkerResponse()

    def lost(self) -> str | None:
        """Return the signal that killed a worker, or None if none was killed.

        Each worker is reported once.
        """
        with self.lock:
            for each in self.workers:
                if (code := each[2].poll()) is not None and code < 0:
                    self.workers.remove(each)
                    return f"signal {-code}"
        return None

    def stop(self) -> None:
        """Stop all workers."""
        with self.lock:
            for _, _, process in self.workers:
                stop(process)
            self.workers.clear()


def stop(process: "subprocess.Popen[bytes]") -> None:
    """End a worker at once: it saves nothing at its end."""
    process.kill()
    process.wait()


def serve(address: str, key: str) -> tuple[Pool, grpc.Server, int]:
    """Start a pool with a secret in this process; return it, its server and its port."""
    from apache_beam.utils import thread_pool_executor

    options = [("grpc.http2.max_pings_without_data", 0), ("grpc.http2.max_ping_strikes", 0)]
    server = grpc.server(thread_pool_executor.shared_unbounded_instance(), options=options)
    port = server.add_insecure_port(address)
    pool = Pool(key)
    fn_services.add_BeamFnExternalWorkerPoolServicer_to_server(pool, server)
    server.start()
    return pool, server, port


def main() -> None:
    """Serve until a signal arrives."""
    parser = Arguments(description=__doc__.partition("\n")[0])
    parser.add_argument("--port", type=int, default=50000)
    parser.add_argument("--host", default="localhost", help="0.0.0.0: accept other machines too")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    pool, server, port = serve(f"{options.host}:{options.port}", secret())
    print(f"workers at {options.host}:{port}", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        threading.Event().wait()
    server.stop(0)
    pool.stop()


if __name__ == "__main__":
    main()
