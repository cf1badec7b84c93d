"""When a stream of speech can first be heard."""

import io
import struct
import wave

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlay.probe.sound import SILENCE_DB, heard, layout_of
from outlay.units import NS_PER_MS

RATE = 24_000


def pcm(silent_ms: int, loud_ms: int, amplitude: float = 0.3) -> bytes:
    """Silence, then a tone that begins at its peak: its first sample is loud."""
    silent = np.zeros(RATE * silent_ms // 1000)
    tone = amplitude * np.cos(np.arange(RATE * loud_ms // 1000) / 8)
    return (np.concatenate([silent, tone]) * 32767).astype("<i2").tobytes()


def wav(samples: bytes, *, length: int | None = None, channels: int = 1) -> bytes:
    """A WAV file; `length` replaces both lengths, as servers that stream do not know theirs."""
    made = io.BytesIO()
    with wave.open(made, "wb") as out:
        out.setparams((channels, 2, RATE, 0, "NONE", ""))
        out.writeframes(samples)
    raw = bytearray(made.getvalue())
    if length is not None:
        raw[4:8] = raw[40:44] = struct.pack("<I", length)
    return bytes(raw)


def reads(data: bytes, size: int) -> list[tuple[int, bytes]]:
    """The read with byte n in it comes at n // size."""
    return [(place, data[place * size : (place + 1) * size]) for place in range(-(-len(data) // size))]


@pytest.mark.parametrize("length", [None, 0, 0xFFFFFFFF])
@pytest.mark.parametrize("silent_ms", [0, 1, 100, 2000])
def test_the_read_with_the_first_loud_sample(silent_ms: int, length: int | None):
    found = heard(reads(wav(pcm(silent_ms, 50), length=length), 480))
    # 44 bytes of header, then 48 bytes a millisecond; the last byte of the first loud sample is the second of it.
    assert found.sound_ns == (44 + silent_ms * 48 + 1) // 480
    assert found.silence_ns == silent_ms * NS_PER_MS
    assert found.began_ns == 0
    assert found.visible


def test_sound_begins_with_its_first_whole_sample_and_not_with_its_header():
    data = wav(pcm(20, 20))
    found = heard([(1, data[:44]), (2, data[44:45]), (3, data[45:])])
    assert found.began_ns == 3


def test_silence_throughout_is_never_heard():
    found = heard(reads(wav(pcm(100, 0)), 480))
    assert (found.began_ns, found.sound_ns, found.silence_ns) == (0, None, None)


def test_noise_below_the_threshold_is_silence():
    quiet, audible = 10 ** ((SILENCE_DB - 3) / 20), 10 ** ((SILENCE_DB + 3) / 20)
    assert heard(reads(wav(pcm(0, 20, quiet)), 480)).sound_ns is None
    assert heard(reads(wav(pcm(0, 20, audible)), 480)).sound_ns == 0


@pytest.mark.parametrize(
    ("media", "asked"),
    [("audio/pcm", ""), ("audio/pcm;rate=24000", ""), ("", "pcm"), ("application/octet-stream", "pcm")],
)
def test_sound_without_a_header(media: str, asked: str):
    found = heard(reads(pcm(10, 20), 480), media=media, asked=asked)
    assert (found.sound_ns, found.silence_ns) == (1, 10 * NS_PER_MS)


def test_network_order_of_l16():
    swapped = np.frombuffer(pcm(10, 20), dtype="<i2").astype(">i2").tobytes()
    assert heard(reads(swapped, 480), media="audio/l16;rate=24000").silence_ns == 10 * NS_PER_MS


@pytest.mark.parametrize("media", ["audio/mpeg", "audio/ogg", "audio/flac", "audio/aac"])
def test_compressed_sound_has_only_a_first_byte(media: str):
    found = heard([(3, b""), (5, b"xyz")], media=media)
    assert (found.began_ns, found.sound_ns, found.visible) == (5, None, False)


def test_two_channels_of_which_one_speaks():
    one = np.frombuffer(pcm(10, 20), dtype="<i2")
    both = np.stack([np.zeros_like(one), one], axis=1).tobytes()
    assert heard(reads(wav(both, channels=2), 480)).silence_ns == 10 * NS_PER_MS


def spelled(tag: int, bits: int, samples: bytes, *, extensible: bool = False) -> bytes:
    """A WAV header by hand, for the kinds of samples that Python does not write."""
    kind = struct.pack("<HHIIHH", 0xFFFE if extensible else tag, 1, RATE, RATE * bits // 8, bits // 8, bits)
    if extensible:
        kind += struct.pack("<HHIH14s", 22, bits, 4, tag, b"")
    listed = b"LIST" + struct.pack("<I", 3) + b"abc\0"  # a chunk of odd length is padded
    chunks = b"fmt " + struct.pack("<I", len(kind)) + kind + listed + b"data" + struct.pack("<I", 0) + samples
    return b"RIFF" + struct.pack("<I", 0) + b"WAVE" + chunks


@pytest.mark.parametrize("extensible", [False, True])
@pytest.mark.parametrize(
    ("tag", "bits", "silent", "loud"),
    [
        (1, 8, b"\x80", b"\xc0"),  # 8 bits have no sign: the middle is silence, 192 is half of full scale
        (1, 16, b"\0\0", b"\0\x40"),
        (1, 24, b"\0\0\0", b"\0\0\xc0"),  # negative
        (1, 32, b"\0\0\0\0", b"\0\0\0\x40"),
        (3, 32, struct.pack("<f", 0), struct.pack("<f", -0.5)),
        (3, 64, struct.pack("<d", 0), struct.pack("<d", 0.5)),
    ],
)
def test_each_kind_of_sample(tag: int, bits: int, silent: bytes, loud: bytes, extensible: bool):
    found = heard([(7, spelled(tag, bits, silent * 240 + loud, extensible=extensible))])
    assert (found.sound_ns, found.silence_ns) == (7, 10 * NS_PER_MS)  # 240 samples of 24 a millisecond


def test_a_kind_of_sample_that_is_not_known_is_not_looked_at():
    assert not heard([(7, spelled(7, 8, b"\xff" * 100))]).visible  # mu-law


@given(
    st.lists(st.binary(max_size=80), max_size=6), st.sampled_from(["", "audio/wav", "audio/pcm", "audio/l16;rate=0"])
)
def test_any_bytes_are_taken(pieces: list[bytes], media: str):
    found = heard(list(enumerate(pieces)), media=media)
    assert found.sound_ns is None or found.began_ns is None or found.began_ns <= found.sound_ns


@given(st.binary(max_size=60))
def test_any_header_is_taken(tail: bytes):
    layout_of(b"RIFF\0\0\0\0WAVE" + tail)
    heard([(0, b"RIFF\0\0\0\0WAVEfmt " + tail)])
