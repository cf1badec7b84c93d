"""What to send: the request that an API expects, or the one that a user's template spells."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

import msgspec

from outlay.probe import templates

# About one token each in the vocabularies of today's models.
WORDS = tuple(
    """
    able about above add after again age air all also among and animal answer any area arm army art ask away baby back
    bad ball bank base bed been before began best better big bird black blue board boat body book both box boy bring
    brother build bus but buy call came can car card care case cat cause cell change child city class clear close cold
    color come common cool cost could country course cover cut dark day deep did door down draw dream drive drop dry
    early earth east easy eat edge end even ever every eye face fact fall family far farm fast father feel feet few
    field fill find fine fire first fish five floor fly follow food foot force form found four free friend from front
    full game gave girl give glass gold good great green ground group grow half hand happy hard head hear heart heat
    help here high hill hold home horse hot hour house idea inch into iron island job just keep kind king knew know
    lake land large last late laugh lead learn leave left leg less letter life light like line list little live long
    look lost lot love low machine made main make man many map mark may mean measure men might mile milk mind
    """.split()  # noqa: SIM905 -- a literal tuple of so many words is a page long
)

_MEDIA_JSON = "application/json"

# A turn on the Realtime API ends with the first message that holds one of these.
REALTIME_ENDS = (b'"response.done"', b'"type":"error"', b'"type": "error"')


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """A file to send. `name` is only the last part of its path."""

    name: str
    data: bytes = field(repr=False)
    media: str = "application/octet-stream"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What each request of a run asks for.

    Without a `prompt`, each request has its own of `words` words. `output_tokens` None leaves the length to the
    server. `templates` are the body of an `http` request or the messages of a turn on a WebSocket; without any, the
    first has no body and the second speaks the Realtime API. `options` are further fields of the body, which win over
    ours (`voice`, `response_format`, `temperature`, ...). `path` empty means the API's own.

    Raises ValueError, for people, for what cannot be asked.
    """

    api: str = "chat"
    model: str = ""
    stream: bool = True
    prompt: str | None = field(default=None, repr=False)
    words: int = 32
    output_tokens: int | None = None
    templates: tuple[bytes, ...] = field(default=(), repr=False)
    file: Upload | None = None
    options: Mapping[str, object] = field(default_factory=dict, repr=False)
    method: str = "POST"
    path: str = ""

    def __post_init__(self) -> None:
        if self.api not in APIS:
            raise ValueError(f"{self.api!r} is not an API; known are {', '.join(APIS)}")
        if self.words < 1 or (self.output_tokens is not None and self.output_tokens < 1):
            raise ValueError("a prompt has at least one word, and an answer at least one token")
        if self.api == "transcriptions" and self.file is None:
            raise ValueError("a transcription needs a file with speech")
        if self.templates and self.api not in _BY_TEMPLATE:
            raise ValueError(f"a template goes with {' or '.join(_BY_TEMPLATE)}, not with {self.api}")
        if self.api == "http" and len(self.templates) > 1:
            raise ValueError("an http request has one body")
        wanted = {name for template in self.templates for name in templates.names(templates.check(template))}
        if "output_tokens" in wanted and self.output_tokens is None:
            raise ValueError("the template asks for {{output_tokens}}, and none are given")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request: its target's path, headers beyond those of any request, and the body; of a WebSocket, messages."""

    method: str
    path: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = field(default=b"", repr=False)
    messages: tuple[bytes, ...] = field(default=(), repr=False)


Build = Callable[[Ask, str, str], Request]


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """One API: its usual path, the component that answers, what makes a request of a prompt and an id.

    `streams` False: it always answers whole.
    """

    path: str
    component: str
    build: Build
    streams: bool = True


def request_of(ask: Ask, *, number: int, seed: int = 0) -> Request:
    """The request with this number. The same ask, number and seed give the same bytes.

    A prompt of words is about as many tokens long, a common word being about one; it is drawn anew for each number
    from its first word on, so that no prefix cache of the server makes it faster than a new question would be.
    """
    prompt = synthetic(ask.words, f"{seed}/{number}") if ask.prompt is None else ask.prompt
    return APIS[ask.api].build(ask, prompt, f"outlay-{seed}-{number}")


def synthetic(words: int, seed: str) -> str:
    """So many words, at least one, drawn by the seed."""
    # Not for secrets; a text as seed is hashed, so that neighbouring seeds share no beginning.
    return " ".join(random.Random(seed).choices(WORDS, k=words))


def api_of(path: str) -> str:
    """The API that a path belongs to, its query aside. A bare base such as `/` or `/v1` is `chat`, any other `http`."""
    plain = _plain(path)
    if _is_base(plain):
        return "chat"
    return next((name for ending, name in _ENDINGS if plain.endswith(ending)), "http")


def path_of(api: str, path: str) -> str:
    """The path to send to: a bare base gets the API's own path, its query kept; any other stands as it is."""
    plain, mark, query = path.partition("?")
    usual = APIS[api].path
    if api == "http" or not _is_base(_plain(path)):
        return path or "/"
    base = plain.rstrip("/")
    return (base + usual.removeprefix("/v1") if base.endswith("/v1") else usual) + mark + query


def _plain(path: str) -> str:
    return path.partition("?")[0].rstrip("/")


def _is_base(plain: str) -> bool:
    return plain == "" or plain.endswith("/v1")


# Bodies


def _chat(ask: Ask, prompt: str, _: str) -> Request:
    messages = [{"role": "user", "content": prompt}]
    return _json(ask, {"model": ask.model, "messages": messages} | _tokens(ask, "max_tokens") | _streamed(ask))


def _completions(ask: Ask, prompt: str, _: str) -> Request:
    return _json(ask, {"model": ask.model, "prompt": prompt} | _tokens(ask, "max_tokens") | _streamed(ask))


def _responses(ask: Ask, prompt: str, _: str) -> Request:
    return _json(ask, _model_input(ask, prompt) | _tokens(ask, "max_output_tokens") | {"stream": ask.stream})


def _embeddings(ask: Ask, prompt: str, _: str) -> Request:
    return _json(ask, _model_input(ask, prompt))


def _speech(ask: Ask, prompt: str, _: str) -> Request:
    # In WAV the first sound can be seen, in the usual MP3 it cannot.
    return _json(ask, _model_input(ask, prompt) | {"voice": "alloy", "response_format": "wav"})


def _model_input(ask: Ask, prompt: str) -> dict[str, object]:
    return {"model": ask.model, "input": prompt}


def _streamed(ask: Ask) -> dict[str, object]:
    return {"stream": True, "stream_options": {"include_usage": True}} if ask.stream else {"stream": False}


def _tokens(ask: Ask, name: str) -> dict[str, object]:
    return {} if ask.output_tokens is None else {name: ask.output_tokens}


def _json(ask: Ask, body: dict[str, object]) -> Request:
    return _post(ask, msgspec.json.encode(body | dict(ask.options)), _MEDIA_JSON)


def _transcriptions(ask: Ask, _: str, request_id: str) -> Request:
    if ask.file is None:
        raise ValueError("a transcription needs a file with speech")
    boundary = request_id
    while boundary.encode() in ask.file.data:
        boundary += "-"
    fields = {"model": ask.model, "response_format": "json", "stream": "true" if ask.stream else "false"}
    texts = {name: value if isinstance(value, str) else _text(value) for name, value in ask.options.items()}
    parts = [
        _part(boundary, f'name="{_quotable(name)}"', "", value.encode()) for name, value in (fields | texts).items()
    ]
    named = f'name="file"; filename="{_quotable(ask.file.name)}"'
    parts.append(_part(boundary, named, f"Content-Type: {ask.file.media}\r\n", ask.file.data))
    body = b"".join((*parts, f"--{boundary}--\r\n".encode()))
    return _post(ask, body, f"multipart/form-data; boundary={boundary}")


def _text(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _quotable(name: str) -> str:
    return name.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")


def _part(boundary: str, disposition: str, header: str, data: bytes) -> bytes:
    head = f"--{boundary}\r\nContent-Disposition: form-data; {disposition}\r\n{header}\r\n"
    return head.encode() + data + b"\r\n"


def _http(ask: Ask, prompt: str, request_id: str) -> Request:
    if not ask.templates:
        return Request(method=ask.method, path=_path(ask))
    body = templates.fill(ask.templates[0], _values(ask, prompt, request_id))
    media = _MEDIA_JSON if templates.is_json(ask.templates[0]) else "text/plain; charset=utf-8"
    return _post(ask, body, media)


def _websocket(ask: Ask, prompt: str, request_id: str) -> Request:
    values = _values(ask, prompt, request_id)
    path = _path(ask)
    if ask.templates:
        messages = tuple(templates.fill(template, values) for template in ask.templates)
        return Request(method="GET", path=path, messages=messages)
    # The Realtime API takes the model from the address.
    named = path if not ask.model or "?" in path else f"{path}?model={quote(ask.model, safe='')}"
    return Request(method="GET", path=named, messages=_realtime(ask, prompt))


def _realtime(ask: Ask, prompt: str) -> tuple[bytes, ...]:
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": prompt}]}
    response = _tokens(ask, "max_output_tokens") | dict(ask.options)
    events = ({"type": "conversation.item.create", "item": item}, {"type": "response.create", "response": response})
    return tuple(map(msgspec.json.encode, events))


def _values(ask: Ask, prompt: str, request_id: str) -> Mapping[str, str]:
    return {
        "prompt": prompt,
        "model": ask.model,
        "input_tokens": str(len(prompt.split())),
        "output_tokens": "" if ask.output_tokens is None else str(ask.output_tokens),
        "id": request_id,
    }


def _post(ask: Ask, body: bytes, media: str) -> Request:
    return Request(method=ask.method, path=_path(ask), headers=(("content-type", media),), body=body)


def _path(ask: Ask) -> str:
    return ask.path or APIS[ask.api].path


APIS: Mapping[str, Api] = {
    "chat": Api(path="/v1/chat/completions", component="llm", build=_chat),
    "completions": Api(path="/v1/completions", component="llm", build=_completions),
    "responses": Api(path="/v1/responses", component="llm", build=_responses),
    "embeddings": Api(path="/v1/embeddings", component="embedding", build=_embeddings, streams=False),
    "speech": Api(path="/v1/audio/speech", component="tts", build=_speech),
    "transcriptions": Api(path="/v1/audio/transcriptions", component="asr", build=_transcriptions),
    "http": Api(path="/", component="service", build=_http),
    "websocket": Api(path="/v1/realtime", component="service", build=_websocket),
}

_BY_TEMPLATE = ("http", "websocket")

# Longer endings first: chat's is one of completions' too.
_ENDINGS = (
    ("/chat/completions", "chat"),
    ("/completions", "completions"),
    ("/responses", "responses"),
    ("/embeddings", "embeddings"),
    ("/audio/speech", "speech"),
    ("/audio/transcriptions", "transcriptions"),
    ("/realtime", "websocket"),
)
