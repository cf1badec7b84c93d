"""What a request asks of a model: which behaviour, and how it wants to hear it. Pure."""

import re
from collections.abc import Callable, Mapping
from urllib.parse import parse_qs

import msgspec

from outlay.lab.beats import Api, Call
from outlay.lab.form import fields
from outlay.lab.inbound import Request
from outlay.lab.script import Script, parse

ID = re.compile(r"[\w.:-]{1,128}", re.ASCII)  # an id that a client may give


class _StreamOptions(msgspec.Struct):
    include_usage: bool = False


class _Asked(msgspec.Struct):
    model: str
    stream: bool = False
    stream_options: _StreamOptions | None = None
    input: msgspec.Raw = msgspec.Raw(b"null")


_ASKED = msgspec.json.Decoder(_Asked)
_INPUTS = msgspec.json.Decoder(list[msgspec.Raw])


def asked(request: Request, api: Api, new_id: Callable[[], str]) -> tuple[Script, Call]:
    """The behaviour that is wanted, and the call of it. Raises ValueError or RecursionError for what makes no sense."""
    wanted = _READERS.get(api, _json)(request)
    script = parse(wanted.model)
    given = request.header(b"x-request-id")
    call = Call(
        api=api,
        id=given if ID.fullmatch(given) else new_id(),
        model=wanted.model,
        stream=wanted.stream,
        usage=wanted.stream_options is not None and wanted.stream_options.include_usage,
        inputs=_inputs(wanted) if api == "embeddings" else 1,
    )
    return script, call


def _json(request: Request) -> _Asked:
    return _ASKED.decode(request.body)


def _upload(request: Request) -> _Asked:
    form = fields(request.header(b"content-type"), bytes(request.body))
    if "file" not in form or not form["file"].is_file:
        raise ValueError("the form has no file named `file`")
    said = {name: field.value.decode("utf-8", "replace") for name, field in form.items() if not field.is_file}
    if said.get("response_format", "json") != "json":
        raise ValueError("the only response_format here is json")
    if "model" not in said:
        raise ValueError("the form has no field `model`")
    return _Asked(model=said["model"], stream=said.get("stream", "false").lower() in ("true", "1"))


def _query(request: Request) -> _Asked:
    query = parse_qs(request.target.partition(b"?")[2].decode("latin-1"), max_num_fields=16)
    if "model" not in query:
        raise ValueError("the address has no ?model=")
    return _Asked(model=query["model"][0], stream=True)


_READERS: Mapping[Api, Callable[[Request], _Asked]] = {"transcriptions": _upload, "realtime": _query}


def _inputs(wanted: _Asked) -> int:
    """How many embeddings are wanted: one for each text of a list; a list of token numbers is one text."""
    raw = bytes(wanted.input)
    if not raw.startswith(b"["):
        return 1
    texts = [text for text in _INPUTS.decode(raw) if not bytes(text)[:1].isdigit()]
    return max(len(texts), 1)
