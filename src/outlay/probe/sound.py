"""When a stream of speech can first be heard: the read that holds its first sample that is not silence.

Samples are looked at one by one against -50 dB of full scale. Speech lies at -30 to -15, the noise and dither of a
synthesiser's pause below -60; the first sample above the threshold is the onset of the sound or a click, and both are
heard. Compressed sound is not decoded, so of it only the first byte is known.
"""

import struct
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from outlay.units import NS_PER_S

SILENCE_DB = -50.0
_SILENCE = 10 ** (SILENCE_DB / 20)

# What speech APIs mean by "pcm", which has no header to say it.
PCM_RATE = 24_000

_BLOCK_FRAMES = 1 << 15
# The numbers of WAV's format tag; of the extensible one, the tag proper is the head of an identifier.
_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE
_FORMAT = struct.Struct("<HHIIHH")

# Numpy's name for the samples, and half their range. 24 bits have none and are widened.
_SAMPLES: Mapping[tuple[int, int], tuple[str, float]] = {
    (_PCM, 8): ("u1", 2.0**7),
    (_PCM, 16): ("<i2", 2.0**15),
    (_PCM, 24): ("<i4", 2.0**31),
    (_PCM, 32): ("<i4", 2.0**31),
    (_FLOAT, 32): ("<f4", 1.0),
    (_FLOAT, 64): ("<f8", 1.0),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How sound lies in bytes: `begin` is the offset of its first sample; a frame holds a sample of each channel."""

    tag: int
    bits: int
    channels: int
    rate: int
    begin: int = 0
    big_endian: bool = False

    @property
    def frame_bytes(self) -> int:
        return self.bits // 8 * self.channels


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """When sound came, instants as those of the reads; None means that it did not, or cannot be seen.

    `began_ns` is the first read with sound in it, silent or not, `sound_ns` the first with a sample above the
    threshold, and `silence_ns` how much of the sound lies before that sample, as it would be played. `visible` says
    whether the samples could be looked at: where not, `began_ns` is the first byte.
    """

    began_ns: int | None = None
    sound_ns: int | None = None
    silence_ns: int | None = None
    visible: bool = True


def heard(reads: Sequence[tuple[int, bytes]], *, media: str = "", asked: str = "") -> Heard:
    """When the sound of an answer came. Takes any bytes.

    WAV tells its own layout, also with the lengths of 0 or 0xFFFFFFFF that streams write. Other sound has one when
    `media`, the answer's content type, is `audio/pcm` or `audio/l16`, or, where it says less, `asked` is `pcm`.
    """
    body = b"".join(read for _, read in reads)
    layout = layout_of(body, media=media, asked=asked)
    if layout is None:
        return Heard(began_ns=next((at_ns for at_ns, read in reads if read), None), visible=False)
    ends = list(accumulate(len(read) for _, read in reads))

    def at_ns(offset: int) -> int | None:
        place = bisect_right(ends, offset)
        return reads[place][0] if place < len(reads) else None

    loud = _first_loud(memoryview(body)[layout.begin :], layout)
    whole_frame = at_ns(layout.begin + layout.frame_bytes - 1)
    if loud is None:
        return Heard(began_ns=whole_frame)
    return Heard(
        began_ns=whole_frame,
        sound_ns=at_ns(layout.begin + (loud + 1) * layout.frame_bytes - 1),
        silence_ns=loud * NS_PER_S // layout.rate,
    )


def layout_of(body: bytes, *, media: str = "", asked: str = "") -> Layout | None:
    """The layout of the samples; None for compressed sound and for what cannot be read."""
    if body[:4] == b"RIFF" and body[8:12] == b"WAVE":
        return _wav(body)
    kind, _, parameters = media.lower().partition(";")
    kind = kind.strip()
    if kind not in ("audio/pcm", "audio/l16") and not (asked == "pcm" and kind in ("", "application/octet-stream")):
        return None
    stated = dict(_parameters(parameters))
    rate, channels = stated.get("rate", PCM_RATE), stated.get("channels", 1)
    # RFC 2586 has the samples of L16 in network order.
    layout = Layout(tag=_PCM, bits=16, channels=channels, rate=rate, big_endian=kind == "audio/l16")
    return layout if rate and channels else None


def _parameters(text: str) -> Iterator[tuple[str, int]]:
    for parameter in text.split(";"):
        name, _, value = parameter.partition("=")
        digits = value.strip().strip('"')
        if digits.isascii() and digits.isdigit() and len(digits) < 10:
            yield name.strip(), int(digits)


def _wav(body: bytes) -> Layout | None:
    """The layout by the chunks before the data; its own length is not read, as streams do not know it."""
    found: tuple[int, int, int, int] | None = None
    place = 12
    while place + 8 <= len(body):
        name, size = body[place : place + 4], int.from_bytes(body[place + 4 : place + 8], "little")
        place += 8
        if name == b"data":
            return _layout(found, place)
        if name == b"fmt " and size >= _FORMAT.size and place + _FORMAT.size <= len(body):
            tag, channels, rate, _, _, bits = _FORMAT.unpack_from(body, place)
            if tag == _EXTENSIBLE:
                tag = int.from_bytes(body[place + 24 : place + 26], "little")
            found = (tag, bits, channels, rate)
        place += size + size % 2
    return None


def _layout(found: tuple[int, int, int, int] | None, begin: int) -> Layout | None:
    if found is None:
        return None
    tag, bits, channels, rate = found
    readable = (tag, bits) in _SAMPLES and channels and rate
    return Layout(tag=tag, bits=bits, channels=channels, rate=rate, begin=begin) if readable else None


def _first_loud(data: memoryview, layout: Layout) -> int | None:
    """The first frame with a sample above the threshold; None when there is none, or no whole frame."""
    step = _BLOCK_FRAMES * layout.frame_bytes
    for begin in range(0, len(data), step):
        block = data[begin : begin + step]
        # A part of a frame at the end cannot be heard yet.
        samples = _samples(block[: len(block) // layout.frame_bytes * layout.frame_bytes], layout)
        loud = np.flatnonzero(np.abs(samples) > _SILENCE)
        if len(loud):
            return (begin // layout.frame_bytes) + int(loud[0]) // layout.channels
    return None


def _samples(data: memoryview, layout: Layout) -> npt.NDArray[np.float64]:
    """The samples in a range of -1 to 1."""
    dtype, full = _SAMPLES[layout.tag, layout.bits]
    if layout.bits == 24:
        wide = np.zeros((len(data) // 3, 4), dtype=np.uint8)
        wide[:, 1:] = np.frombuffer(data, dtype=np.uint8).reshape(-1, 3)
        numbers = wide.view(dtype).ravel()
    else:
        numbers = np.frombuffer(data, dtype=dtype.replace("<", ">") if layout.big_endian else dtype)
    # 8-bit samples have no sign: silence is the middle of their range. What is no number is not heard.
    with np.errstate(invalid="ignore"):
        return (numbers.astype(np.float64) - (full if layout.bits == 8 else 0.0)) / full
