"""What the options of `outlay measure` mean together: a job, or what is wrong with them in one line."""

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from outlay.budget import Budget, Moment
from outlay.cli.saying import spec_of
from outlay.observed import UNTIL, Instant
from outlay.probe.address import Address, Header, check_header, parse_address
from outlay.probe.asking import APIS, REALTIME_ENDS, Ask, Upload, api_of, path_of
from outlay.probe.orders import Target, Tls
from outlay.units import MAX_NS, NS_PER_S, parse_duration

DEFAULT_RATE = 2.0
DEFAULT_DURATION = "30s"

# One sender keeps well within its own limits up to here.
RATE_OF_A_SENDER = 600.0

_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")

# A second one would say something else than the request is; of a compressed answer nothing can be seen as it comes.
_OWN_HEADERS = (
    "host",
    "content-length",
    "transfer-encoding",
    "accept-encoding",
    "user-agent",
    "traceparent",
    "x-request-id",
)

# Dimensions that say what the run did; outlay.cold names the first, and its import would delay the first request.
_LABELS = ("cold", "stage", "point")

_SECRETS = ("authorization", "proxy-authorization", "cookie", "api-key", "x-api-key", "apikey")

# Marks that --within may count to, and what an answer without a stream has of them.
FIRST_TOKEN, FIRST_OUTPUT, END = "first_token", "first_output_token", "end"

_MOMENTS = {
    "speech": "speech",
    "transcriptions": "transcription",
    "embeddings": "embedding",
    "http": "request",
    "websocket": "turn",
}


class Mistake(ValueError):  # noqa: N818 -- raised and read as what the user made
    """Options that cannot be; the text says which and what to write instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PointPlan:
    """One place to measure at."""

    name: str
    address: Address
    path: str
    target: Target


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPlan:
    """How much to send and when. `lanes` None is an open loop."""

    rate: float | None = None
    for_ns: int | None = None
    requests: int | None = None
    arrivals: str = "poisson"
    shape: float = 1.0
    stages: str | None = None
    replay: Path | None = None
    speed: float = 1.0
    lanes: int | None = None
    warm_up_ns: int = 0
    idle_ns: tuple[int, ...] = ()
    seed: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """All of one run."""

    points: tuple[PointPlan, ...]
    ask: Ask
    headers: tuple[Header, ...] = field(repr=False)
    load: LoadPlan
    timeout_ns: int
    connections: int
    fresh: bool
    senders: int
    metrics: Address | None
    dimensions: Mapping[str, str]
    moment: str | None
    within_ns: int | None
    percentile: float
    to: str | None
    budget: str | None
    log: Path
    quiet: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What the interactions are called, what limit holds for them, and the instant that the limit counts to."""

    moment: Moment
    until: Instant

    @property
    def within_ns(self) -> int | None:
        """The limit; None without one."""
        return None if self.moment.budget is None else self.moment.budget.limit_ns


class Numbers:
    """What a request's number says: where it goes, and its id."""

    def __init__(self, points: int) -> None:
        self._points = points
        self._run_id = os.urandom(8).hex()

    def trace_id(self, number: int) -> str:
        """A trace id, so that spans which servers make of the request can be joined with it."""
        return f"{self._run_id}{number:016x}"

    def point_of(self, number: int) -> int:
        """Which point it goes to: each round visits all, and begins one further than the round before it."""
        return (number + number // self._points) % self._points


def job_of(given: Mapping[str, Any]) -> Job:
    """The job that the options spell. Raises Mistake."""
    api = _api(given)
    _check_together(given, api, tls=any(_address(url).tls for _, url in _urls(given)))
    _check_page(given["html"])
    points = _points(given, api)
    load = _load(given)
    return Job(
        points=points,
        ask=_ask(given, api, points[0].path),
        headers=_headers(given),
        load=load,
        timeout_ns=_duration("--timeout", given["timeout"]),
        connections=given["connections"] or 10_000,
        fresh=given["fresh"],
        senders=_senders(given, load),
        metrics=_metrics(given, points[-1]),
        dimensions=_dimensions(given),
        moment=given["moment"],
        within_ns=None if given["within"] is None else _duration("--within", given["within"]),
        percentile=given["percentile"],
        to=given["to"],
        budget=given["budget"],
        log=given["log"] or _free_name(f"measure-{datetime.now(tz=UTC):%Y%m%d-%H%M%S}"),  # noqa: TID251 -- it only names a file
        quiet=given["quiet"],
    )


def _check_together(given: Mapping[str, Any], api: str, *, tls: bool) -> None:
    """An option that would say nothing is a mistake: whoever gave it believes that it does."""
    drawn = given["concurrency"] is None and given["replay"] is None
    goes_with = (
        ("speed", 1.0, given["replay"] is not None, "--replay"),
        ("arrivals", "poisson", drawn, "--rate and --stages"),
        ("method", "POST", api == "http", "--api http"),
        ("body", None, api in ("http", "websocket"), "--api http and WebSockets"),
        ("until", None, api == "websocket", "WebSockets"),
        ("file", None, api == "transcriptions", "--api transcriptions"),
        ("ca_file", None, tls, "https and wss"),
        ("cert", None, tls, "https and wss"),
        ("insecure", False, tls, "https and wss"),
        ("cert_key", None, given["cert"] is not None, "--cert"),
        ("percentile", 99.0, given["within"] is not None, "--within"),
    )
    for name, unsaid, says, what in goes_with:
        if not says and (given[name] or unsaid) != unsaid:
            raise Mistake(f"--{name.replace('_', '-')} goes with {what}")
    if given["within"] is not None and given["budget"] is not None:
        raise Mistake("--within and --budget each set the limit: choose one")


def _check_page(page: Path | None) -> None:
    """Not only once all is measured."""
    if page is not None and (page.is_dir() or not os.access(page.resolve().parent, os.W_OK)):
        raise Mistake(f"--html {page}: no file can be written there")


def judged_of(job: Job) -> Judged:
    """The moment and the limit of a job. Raises Mistake; ends with what is wrong with a file that it reads."""
    declared = _declared(job)
    if declared is not None:
        name, budget, end = declared.name, declared.budget, declared.end
    else:
        name, end = job.moment or _MOMENTS.get(job.ask.api, "llm-request"), None
        budget = None if job.within_ns is None else Budget(limit_ns=job.within_ns, percentile=job.percentile)
    # A mark that only an application sees, such as the first visible word, becomes what its client gets to show.
    mark = job.to or (end if end is not None and end in UNTIL else FIRST_OUTPUT if budget is not None else END)
    if mark not in UNTIL:
        raise Mistake(f"--to {mark}: a client sees {', '.join(UNTIL)}")
    if mark == FIRST_TOKEN and not job.ask.stream:
        raise Mistake("--to first_token: an answer at once has no first token; leave out --whole")
    seen = mark if mark != END and job.ask.stream else None
    return Judged(moment=Moment(name=name, budget=budget, end=seen), until=UNTIL[mark])


def _declared(job: Job) -> Moment | None:
    """The moment of an outlay.yaml or a preset whose limit holds; None without one."""
    here = job.moment is not None and job.within_ns is None and Path("outlay.yaml").is_file()
    if job.budget is None and not here:
        return None
    moments = {moment.name: moment for moment in spec_of(job.budget).moments}
    if job.moment in moments:
        return moments[job.moment]
    if job.budget is None:
        return None
    if job.moment is not None or len(moments) != 1:
        raise Mistake(f"--moment: choose one of {', '.join(sorted(moments))}")
    return next(iter(moments.values()))


def clock_name() -> str:
    """The name of this machine's clock: no other machine shares it."""
    return platform.node() or "client"


# Where


def _urls(given: Mapping[str, Any]) -> list[tuple[str, str]]:
    paths = [_pair("--path", text, "=", "NAME=URL") for text in given["path"] or ()]
    if given["url"] is not None and paths:
        raise Mistake("give one URL, or several points with --path, not both")
    if given["url"] is None and not paths:
        raise Mistake("what is to be measured? Give a URL, such as http://localhost:8000/v1/chat/completions")
    if len({name for name, _ in paths}) < len(paths):
        raise Mistake("--path: two points have the same name")
    return paths or [("", given["url"])]


def _api(given: Mapping[str, Any]) -> str:
    address = _address(_urls(given)[0][1])
    api: str = given["api"] or ("websocket" if address.websocket else api_of(address.path))
    if api not in APIS:
        raise Mistake(f"--api {api}: known are {', '.join(APIS)}")
    return api


def _address(text: str) -> Address:
    try:
        return parse_address(text)
    except ValueError as error:
        raise Mistake(str(error)) from None


def _points(given: Mapping[str, Any], api: str) -> tuple[PointPlan, ...]:
    return tuple(_point(given, api, name, _address(url)) for name, url in _urls(given))


def _point(given: Mapping[str, Any], api: str, name: str, address: Address) -> PointPlan:
    path = path_of(api, address.path)
    websocket = api == "websocket"
    if websocket and given["model"] and "model=" not in path:
        path += f"{'&' if '?' in path else '?'}model={quote(given['model'], safe='')}"
    target = Target(
        host=address.host,
        port=address.port,
        tls=_tls(given, address),
        upgrade=f"ws{'s' if address.tls else ''}://{address.authority}{path}" if websocket else "",
        upgrade_headers=_headers(given) if websocket else (),
        until=_until(given) if websocket else (),
    )
    return PointPlan(name=name or address.authority, address=address, path=path, target=target)


def _until(given: Mapping[str, Any]) -> tuple[bytes, ...]:
    if given["until"]:
        return tuple(text.encode() for text in given["until"])
    if given["body"] is not None:
        raise Mistake("--until: say what the last message of a turn holds, since its messages are your own")
    return REALTIME_ENDS


def _tls(given: Mapping[str, Any], address: Address) -> Tls | None:
    if not address.tls:
        return None
    files = {name: given[name] for name in ("ca_file", "cert", "cert_key") if given[name] is not None}
    for option, file in files.items():
        _read(f"--{option.replace('_', '-')}", file)
    tls = Tls(
        server_name=address.host,
        ca_file=str(files.get("ca_file", "")),
        certificate_file=str(files.get("cert", "")),
        key_file=str(files.get("cert_key", "")),
        verify=not given["insecure"],
    )
    _check_tls(tls)
    return tls


def _check_tls(tls: Tls) -> None:
    if not (tls.ca_file or tls.certificate_file):
        return  # nothing of the user's to be wrong, and making a context takes time
    from outlay.probe.dial import tls_context

    try:
        tls_context(tls)
    except OSError as error:
        raise Mistake(f"the TLS files do not fit: {error.strerror or error}") from None


def _metrics(given: Mapping[str, Any], point: PointPlan) -> Address | None:
    """The server's own page: where the user says, else beside the last point, which is nearest to the server."""
    asked = given["metrics"]
    if asked == "off":
        return None
    if asked is not None:
        return _address(asked)
    scheme = "https" if point.address.tls else "http"
    return parse_address(f"{scheme}://{point.address.authority}/metrics")


# What


def _ask(given: Mapping[str, Any], api: str, path: str) -> Ask:
    if api in ("chat", "completions", "responses", "embeddings", "speech", "transcriptions") and not given["model"]:
        raise Mistake(f"--model: the {api} API wants one by name")
    if given["method"].upper() not in _METHODS:
        raise Mistake(f"--method {given['method']}: known are {', '.join(_METHODS)}")
    file = given["file"]
    if api == "transcriptions" and file is None:
        raise Mistake("--file: a transcription needs a recording, such as --file speech.wav")
    stream = APIS[api].streams and not given["whole"]
    try:
        return Ask(
            api=api,
            model=given["model"] or "",
            stream=stream,
            prompt=given["prompt"],
            words=given["input_tokens"],
            output_tokens=given["output_tokens"],
            templates=_templates(given, api),
            file=None if file is None else Upload(name=file.name, data=_read("--file", file)),
            method=given["method"].upper(),
            path=path,
        )
    except ValueError as error:
        raise Mistake(str(error)) from None


def _templates(given: Mapping[str, Any], api: str) -> tuple[bytes, ...]:
    if given["body"] is None:
        return ()
    template = _read("--body", given["body"])
    return tuple(line for line in template.splitlines() if line.strip()) if api == "websocket" else (template,)


def _read(option: str, path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise Mistake(f"{option} {path}: {error.strerror}") from None


def _headers(given: Mapping[str, Any]) -> tuple[Header, ...]:
    headers = []
    for text in given["header"] or ():
        name, value = _pair("--header", text, ":", "NAME:VALUE")
        if name.lower() in _SECRETS:
            raise Mistake(f"--header {name}: a secret on the command line can be read by others; use --header-env")
        headers.append(_header(name, value.strip()))
    for text in given["header_env"] or ():
        name, variable = _pair("--header-env", text, ":", "NAME:VARIABLE")
        headers.append(_header(name, _variable("--header-env", variable.strip())))
    key = _key(given["key_env"])
    if key is not None and not any(name.lower() == "authorization" for name, _ in headers):
        headers.append(_header("Authorization", f"Bearer {key}"))
    return tuple(headers)


def _header(name: str, value: str) -> Header:
    if name.lower() in _OWN_HEADERS:
        raise Mistake(f"{name}: outlay writes this header itself")
    try:
        return check_header(name, value)
    except ValueError as error:
        raise Mistake(str(error)) from None


def _key(variable: str) -> str | None:
    """The default variable may be absent; one that was asked for may not."""
    if variable == "OUTLAY_API_KEY" and variable not in os.environ:
        return None
    return _variable("--key-env", variable)


def _variable(option: str, name: str) -> str:
    if name not in os.environ:
        raise Mistake(f"{option}: the environment has no variable {name}")
    return os.environ[name]


def _dimensions(given: Mapping[str, Any]) -> dict[str, str]:
    dimensions = dict(_pair("--dim", text, "=", "NAME=VALUE") for text in given["dimension"] or ())
    for name in _LABELS:
        if name in dimensions:
            raise Mistake(f"--dim {name}: outlay writes it itself; choose another name")
    return dimensions | ({"site": given["site"]} if given["site"] else {})


def _free_name(stem: str) -> Path:
    """A name for a log that no file has: two runs in one second would else write into one."""
    names = [Path(f"{stem}.jsonl"), *(Path(f"{stem}-{number}.jsonl") for number in range(2, 100))]
    return next((name for name in names if not name.exists()), names[-1])


def _pair(option: str, text: str, between: str, expected: str) -> tuple[str, str]:
    name, found, value = text.partition(between)
    if not (name.strip() and found and value.strip()):
        # What stands there may be a secret in the wrong place.
        raise Mistake(f"{option}: expected {expected}")
    return name.strip(), value.strip()


# How much


def _load(given: Mapping[str, Any]) -> LoadPlan:
    _check_load(given)
    kind, shape = _arrivals(given["arrivals"])
    stages, replay, lanes, requests = (given[name] for name in ("stages", "replay", "concurrency", "requests"))
    scheduled = stages is not None or replay is not None
    timed = given["duration"] is not None or (requests is None and not scheduled)
    return LoadPlan(
        rate=None if scheduled or lanes is not None else given["rate"] or DEFAULT_RATE,
        for_ns=_duration("--duration", given["duration"] or DEFAULT_DURATION) if timed else None,
        requests=requests,
        arrivals=kind,
        shape=shape,
        stages=stages,
        replay=replay,
        speed=given["speed"],
        lanes=lanes,
        warm_up_ns=0 if given["warm_up"] is None else _duration("--warm-up", given["warm_up"]),
        idle_ns=tuple(_duration("--idle", text) for text in (given["idle"] or "").split(",") if text.strip()),
        seed=given["seed"],
    )


# Each of these says by itself what is sent when.
_EXCLUSIVE = ("rate", "stages", "replay", "concurrency")


def _check_load(given: Mapping[str, Any]) -> None:
    used = [f"--{name}" for name in _EXCLUSIVE if given[name] is not None]
    if len(used) > 1:
        raise Mistake(f"{' and '.join(used)} each say when to send: choose one")
    if given["rate"] is not None and not 0 < given["rate"] <= 100_000:
        raise Mistake("--rate: requests a second, above 0 and at most 100000")
    if not given["speed"] > 0:
        raise Mistake("--speed: above 0; 2 is twice as fast")
    if given["stages"] is not None and (given["duration"] is not None or given["requests"] is not None):
        raise Mistake("--stages say for how long already: leave out --duration and --requests")


def _arrivals(text: str) -> tuple[str, float]:
    kind, _, shape = text.partition(":")
    if kind in ("poisson", "constant") and not shape:
        return kind, 1.0
    try:
        value = float(shape)
    except ValueError:
        value = 0.0
    if kind != "gamma" or not 0 < value < 1e6:
        raise Mistake(f"--arrivals {text}: expected poisson, constant, or gamma:SHAPE such as gamma:0.25")
    return kind, value


def _duration(option: str, text: str) -> int:
    try:
        duration_ns = parse_duration(text)
    except ValueError as error:
        raise Mistake(f"{option}: {error}") from None
    if not 0 < duration_ns < MAX_NS // 4:
        raise Mistake(f"{option}: expected a time above 0, such as 30s")
    return duration_ns


def _senders(given: Mapping[str, Any], load: LoadPlan) -> int:
    if given["senders"] is not None:
        return min(int(given["senders"]), load.lanes or 64)
    return max(1, min(int((load.rate or 0.0) // RATE_OF_A_SENDER) + 1, (os.cpu_count() or 1) - 1))


def describe(load: LoadPlan, count: int | None) -> str:
    """What is sent and when, in words."""
    many = "" if count is None else f", {count:,} requests"
    seeded = f", seed {load.seed}"
    if load.lanes is not None:
        return f"closed loop, {load.lanes} at once{many}"
    if load.replay is not None:
        return f"replay of {load.replay.name} at {load.speed:g} times its speed{many}"
    if load.stages is not None:
        return f"{_kind(load)} stages {load.stages}{many}{seeded}"
    seconds = "" if load.for_ns is None else f" for {load.for_ns / NS_PER_S:g} s"
    return f"{_kind(load)} arrivals, {load.rate:g} a second{seconds}{many}{seeded}"


def _kind(load: LoadPlan) -> str:
    return f"gamma ({load.shape:g})" if load.arrivals == "gamma" else load.arrivals


def names(points: Sequence[PointPlan]) -> tuple[str, ...]:
    """The points' names, in their order."""
    return tuple(point.name for point in points)
