"""What a request asks for, as far as routing needs to know: the model, whether it streams, and how much work it is."""

import msgspec

_BYTES_PER_TOKEN = 4

# Paths that OpenAI's clients use, with what is generated there; all others are handed on as they are.
STREAMED = {
    b"/v1/chat/completions": "chat",
    b"/v1/completions": "completions",
    b"/v1/responses": "responses",
}
WHOLE = {b"/v1/embeddings": "embeddings", b"/v1/audio/speech": "speech"}


class _Body(msgspec.Struct):
    """What routing reads of a body; everything else is left as it is."""

    model: str | None = None
    stream: bool | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    max_output_tokens: int | None = None


class Ask(msgspec.Struct, frozen=True):
    """What one request asks for. `model` None: it names none. `kind` None: a path that nothing is known of."""

    kind: str | None
    model: str | None
    stream: bool
    input_tokens: int
    most_tokens: int | None


_DECODER = msgspec.json.Decoder(_Body)
_RAW = msgspec.json.Decoder(dict[str, msgspec.Raw])


def understand(path: bytes, media: bytes, body: bytes) -> Ask:
    """What a request asks for. Raises ValueError, in words for its sender, for a body that is not what its path takes.

    Tokens are estimated as a quarter of the body's bytes.
    """
    kind = STREAMED.get(path) or WHOLE.get(path)
    tokens = max(len(body) // _BYTES_PER_TOKEN, 1)
    if kind is None or (media and not media.startswith(b"application/json")):
        return Ask(kind, None, False, tokens, None)
    try:
        read = _DECODER.decode(body)
    except msgspec.ValidationError as error:
        raise ValueError(f"the body does not fit: {error}") from None
    except msgspec.DecodeError as error:
        raise ValueError(f"the body is no JSON: {error}") from None
    most = next(
        (count for count in (read.max_completion_tokens, read.max_output_tokens, read.max_tokens) if count is not None),
        None,
    )
    if most is not None and most < 1:
        raise ValueError("the most tokens of an answer must be at least 1")
    return Ask(kind, read.model, bool(read.stream) and path in STREAMED, tokens, most)


def renamed(body: bytes, model: str, most: tuple[str, int] | None = None) -> bytes:
    """The body with another model's name, and with another limit on the answer; the rest is as it was."""
    keys = _RAW.decode(body)
    keys["model"] = msgspec.Raw(msgspec.json.encode(model))
    if most is not None:
        keys[most[0]] = msgspec.Raw(str(most[1]).encode())
    return msgspec.json.encode(keys)


LIMIT_KEYS = {"chat": "max_completion_tokens", "completions": "max_tokens", "responses": "max_output_tokens"}
