"""The sound of an answer: 16-bit mono at 24 kHz, silence first where the script says so, then a square wave. Pure."""

from collections.abc import Iterator

from outlay.lab.beats import Frame, token_beats
from outlay.lab.script import Script
from outlay.units import NS_PER_S

SAMPLE_RATE = 24_000
SAMPLES_PER_TOKEN = SAMPLE_RATE // 50  # 20 ms, the usual packet of a voice call
_LOUD = b"\x00\x20\x00\xe0"  # two samples of a square wave


def wav(script: Script) -> Iterator[Frame]:
    """A WAV file; each token is 20 ms of sound, and reasoning is not heard. The header goes with the first."""
    head = _wav_head(script.tokens * SAMPLES_PER_TOKEN)
    done = 0
    for beat in token_beats(script):
        if beat.what == "content":
            yield Frame(beat.due_ns, head + sound(script, done, beat.tokens), beat.tokens)
            head, done = b"", done + beat.tokens
    if not done:
        yield Frame(script.first_ns, head)


def sound(script: Script, start: int, count: int) -> bytes:
    """The samples of so many tokens that come after `start` of them, little-endian."""
    quiet = script.quiet_ns * SAMPLE_RATE // NS_PER_S
    samples = count * SAMPLES_PER_TOKEN
    silent = min(max(quiet - start * SAMPLES_PER_TOKEN, 0), samples)
    loud = samples - silent
    return b"\0\0" * silent + (_LOUD * (loud // 2 + 1))[: 2 * loud]


def _wav_head(samples: int) -> bytes:
    size = 2 * samples
    numbers = ((16, 4), (1, 2), (1, 2), (SAMPLE_RATE, 4), (2 * SAMPLE_RATE, 4), (2, 2), (16, 2))
    layout = b"".join(value.to_bytes(width, "little") for value, width in numbers)
    return b"RIFF" + (36 + size).to_bytes(4, "little") + b"WAVEfmt " + layout + b"data" + size.to_bytes(4, "little")
