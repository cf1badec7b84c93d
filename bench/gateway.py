"""What a gateway adds to a request: Outlay's, general proxies, AI gateways and none at all, side by side.

    ./dev bench gateway
    ./dev bench gateway --rounds 3 direct haproxy outlay
    ./dev bench gateway --features            # what each feature of Outlay's costs

Needs gcc and wrk, and of the peers those that are to be measured: haproxy, nginx, vllm-router, sglang-router on the
path, or named by an environment variable such as VLLM_ROUTER. A server in C with known timing (`peers/mock.c`) and a
client in C that counts from the intended send (`peers/load.c`) share one core, the gateway has the other. Rounds are
interleaved; figures are medians over rounds, and what is added is counted against `direct` of the same round.
"""

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
MOCK = 18001
BODY = b'{"model":"mock","messages":[{"role":"user","content":"hello"}],"max_tokens":32,"stream":false}'
Figures = dict[str, float]


@dataclass(frozen=True)
class Gateway:
    """How to start one, with `{dir}` for a folder of its own. Without a command it is the server itself."""

    port: int
    command: tuple[str, ...] = ()
    files: Mapping[str, str] | None = None


HAPROXY = """global
  nbthread 1
defaults
  mode http
  timeout connect 1s
  timeout client 60s
  timeout server 60s
  http-reuse always
  option http-no-delay
frontend f
  bind 127.0.0.1:18102
  default_backend b
backend b
  server s 127.0.0.1:18001
"""
NGINX = """worker_processes 1; daemon off; error_log stderr crit; pid nginx.pid; events {worker_connections 4096;}
http { access_log off; keepalive_requests 1000000000;
upstream u {server 127.0.0.1:18001; keepalive 512; keepalive_requests 1000000000;}
server {listen 127.0.0.1:18103 backlog=4096; location / {proxy_pass http://u; proxy_http_version 1.1;
proxy_set_header Connection ""; proxy_buffering off;}}}
"""


def outlay_yaml(sites: int, **gateway: object) -> str:
    """So many sites with two variants each, all of them the one server, which answers at once, and said to."""
    speed = {"prefill": 10_000_000, "step": "1us", "overhead": "20us"}
    url = f"http://127.0.0.1:{MOCK}"
    targets = {
        f"{variant}-{place}": {"url": url, "site": f"site{place}", "variant": variant, "model": "mock",
                               "quality": quality, "metrics": "/none", "speed": speed}
        for place in range(sites) for variant, quality in (("mock", 1.0), ("small", 0.6))
    }  # fmt: skip
    rungs = [{"name": "large", "variants": ["mock"]}, {"name": "small", "variants": ["small"]}]
    return json.dumps(
        {
            "moments": {"chat": {"within": "2s", "output": 32, "ladder": {"rungs": rungs}}},
            "sites": {f"site{place}": {"rtt": f"{200 + 10 * place}us"} for place in range(sites)},
            "targets": targets,
            "gateway": {"listen": "127.0.0.1:18101", "moment": "chat", "scrape": "10s", **gateway},
        }
    )


def outlay(**gateway: object) -> Gateway:
    sites = gateway.pop("sites", 16)
    command = (sys.executable, "-m", "outlay", "gateway", "{dir}/outlay.yaml")
    assert isinstance(sites, int)
    return Gateway(18101, command, {"outlay.yaml": outlay_yaml(sites, **gateway)})


def router(variable: str, *words: str, port: int) -> Gateway:
    name = os.environ.get(variable, words[0])
    more = ("--worker-urls", f"http://127.0.0.1:{MOCK}", "--policy", "round_robin", "--host", "127.0.0.1")
    return Gateway(port, (name, *words[1:], *more, "--port", str(port), "--prometheus-port", str(port + 100)))


GATEWAYS = {
    "direct": Gateway(MOCK),
    "haproxy": Gateway(18102, ("haproxy", "-f", "{dir}/haproxy.cfg"), {"haproxy.cfg": HAPROXY}),
    "nginx": Gateway(18103, ("nginx", "-p", "{dir}", "-c", "{dir}/nginx.conf"), {"nginx.conf": NGINX}),
    "vllm-router": router("VLLM_ROUTER", "vllm-router", port=18109),
    "sglang-router": router("SGLANG_ROUTER", "sglang-router", "launch", port=18107),
    "outlay": outlay(access_log="{dir}/access.jsonl"),
}
FEATURES = {
    "direct": Gateway(MOCK),
    "1 site, no log": outlay(sites=1),
    "32 candidates": outlay(),
    "+ access log": outlay(access_log="{dir}/access.jsonl"),
}


def post(port: int) -> None:
    headers = {"content-type": "application/json", "authorization": "Bearer sk-x"}
    url = f"http://127.0.0.1:{port}/v1/chat/completions"
    urllib.request.urlopen(urllib.request.Request(url, BODY, headers), timeout=5).read()


def used(pid: int) -> tuple[float, float]:
    """CPU seconds and MB of a process and those below it."""
    cpu_s, memory = 0.0, 0.0
    todo = [pid]
    while todo:
        at = Path(f"/proc/{todo.pop()}")
        try:
            fields = (at / "stat").read_text().rpartition(")")[2].split()
            cpu_s += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
            pss = [line for line in (at / "smaps_rollup").read_text().splitlines() if line.startswith("Pss:")]
            memory += int(pss[0].split()[1]) / 1024
            todo += [int(kid) for task in (at / "task").iterdir() for kid in (task / "children").read_text().split()]
        except OSError:
            continue
    return cpu_s, memory


@contextmanager
def running(gateway: Gateway, mock: int) -> Iterator[tuple[int, float]]:
    """Its process and the seconds until its first answer."""
    if not gateway.command:
        yield mock, 0.0
        return
    with tempfile.TemporaryDirectory() as folder:
        for name, text in (gateway.files or {}).items():
            (Path(folder) / name).write_text(text.replace("{dir}", folder))
        command = [word.replace("{dir}", folder) for word in gateway.command]
        begun = time.monotonic()
        with subprocess.Popen(["taskset", "-c", "1", *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              start_new_session=True) as process:  # fmt: skip
            try:
                while True:
                    try:
                        post(gateway.port)
                        break
                    except OSError:
                        if process.poll() is not None or time.monotonic() - begun > 60:
                            raise SystemExit(f"{command[0]} does not start") from None
                        time.sleep(0.005)
                yield process.pid, time.monotonic() - begun
            finally:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(5)
                except subprocess.TimeoutExpired:
                    process.kill()


def load(folder: Path, *arguments: str) -> dict[str, Any]:
    command = ["taskset", "-c", "0", str(folder / "load"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return dict(json.loads(next(line for line in reversed(done.stdout.splitlines()) if line.startswith("{"))))


def measure(folder: Path, gateway: Gateway, mock: int, *, quick: bool) -> Figures:
    """One gateway's figures of one round; times in us."""
    port = str(gateway.port)
    found: Figures = {}
    with running(gateway, mock) as (pid, start_s):
        found["start s"] = start_s
        load(folder, "c", port, "-n", "2000", "-t", "10")
        one = load(folder, "c", port, "-n", "2000" if quick else "8000", "-g", "200", "-w", "0.2", "-t", "30")["lat"]
        found["1 conn p50"], found["1 conn p99"] = one["p50"], one["p99"]
        before = used(pid)[0]
        many = load(folder, "o", port, "-r", "1000", "-d", "2" if quick else "4")
        found["1000/s p50"], found["1000/s p99"] = many["lat"]["p50"], many["lat"]["p99"]
        found["CPU us"] = 1e6 * (used(pid)[0] - before) / max(many["ok"], 1)
        streams = load(
            folder, "s", port, "-k", "50", "-n", "200" if quick else "600", "-w", "0.3", "-m", "mock", "-t", "30"
        )
        found["first chunk p50"], found["first chunk p99"] = streams["ttfc"]["p50"], streams["ttfc"]["p99"]
        found["chunk p99"] = streams["oneway"]["p99"]
        wrk = ["taskset", "-c", "0", "wrk", "-t1", "-c32", "-d3s", "--latency", "-s", str(HERE / "peers/post.lua"),
               f"http://127.0.0.1:{port}/v1/chat/completions"]  # fmt: skip
        told = json.loads(subprocess.run(wrk, capture_output=True, text=True, check=True).stdout.splitlines()[-1])
        found["req/s at 32"], found["bad"] = told["rps"], float(told["bad"])
        found["MB"] = used(pid)[1]
    return found


def table(rounds: Sequence[Mapping[str, Figures]]) -> str:
    """Medians over rounds; times against `direct` of the same round."""
    added = ("1 conn p50", "1 conn p99", "1000/s p50", "1000/s p99", "first chunk p50", "first chunk p99", "chunk p99")
    columns = (*added, "CPU us", "req/s at 32", "MB", "start s", "bad")
    lines = ["| gateway | " + " | ".join(columns) + " |", "|---|" + "---:|" * len(columns)]
    for name in rounds[0]:
        cells = []
        for column in columns:
            values = [
                each[name][column] - (each["direct"][column] if column in added and "direct" in each else 0.0)
                for each in rounds
            ]
            digits = 2 if column == "start s" else 0
            middle, low, high = (
                f"{value:,.{digits}f}" for value in (statistics.median(values), min(values), max(values))
            )
            cells.append(middle if low == high else f"{middle} ({low}-{high})")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("names", nargs="*", help="which of them; all that are installed, when not given")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="less of everything")
    parser.add_argument("--features", action="store_true", help="Outlay's with more and more of its features")
    options = parser.parse_args()
    known = FEATURES if options.features else GATEWAYS
    chosen = {name: known[name] for name in (options.names or known)}
    there = {name: of for name, of in chosen.items() if not of.command or shutil.which(of.command[0])}
    for name in chosen.keys() - there.keys():
        print(f"{name} is not installed", file=sys.stderr)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        for name in ("mock", "load"):
            subprocess.run(["gcc", "-O2", "-o", folder / name, HERE / f"peers/{name}.c", "-lm"], check=True)
        with subprocess.Popen(
            ["taskset", "-c", "0", folder / "mock", str(MOCK), "/dev/null", "mock-t20-i5-n32-vT"]
        ) as mock:
            try:
                time.sleep(0.3)
                rounds: list[dict[str, Figures]] = []
                for number in range(options.rounds):
                    rounds.append({})
                    for name, gateway in there.items():
                        rounds[-1][name] = measure(folder, gateway, mock.pid, quick=options.quick)
                        print(f"round {number + 1}: {name}", file=sys.stderr)
            finally:
                mock.terminate()
    print(table(rounds))


if __name__ == "__main__":
    main()
