"""What fuzzing once found worth keeping is read again, and stays as small as it is."""

import time
from pathlib import Path
from random import Random

import pytest

from fuzz import CODECS, CORPUS, LARGEST_INPUT, MOST_BYTES, MOST_FILES_A_CODEC, bent, features_of, seeds, smallest

FILES = sorted(str(path.relative_to(CORPUS)) for path in CORPUS.rglob("*") if path.is_file())


@pytest.mark.parametrize("codec", CODECS)
def test_every_kept_input_keeps_every_promise(codec: str) -> None:
    """Which those are says `fuzz.features_of`: it raises where one is broken."""
    kept = [CORPUS / name for name in FILES if Path(name).parent.name == codec]
    assert kept
    begun = time.monotonic()
    for path in kept:
        features_of(codec, path.read_bytes())
    assert time.monotonic() - begun < 5


@pytest.mark.parametrize("codec", CODECS)
def test_seeds_reach_beyond_the_first_look(codec: str) -> None:
    """A seed that is refused whole teaches a fuzzer nothing about the rest of a parser."""
    found = [features_of(codec, raw) for raw in seeds(codec) if len(raw) <= LARGEST_INPUT]
    assert any(not feature.startswith("refused") for features in found for feature in features)


def test_the_kept_inputs_are_few_and_small() -> None:
    sizes = [(CORPUS / name).stat().st_size for name in FILES]
    assert max(sizes) <= MOST_BYTES
    assert sum(sizes) < 300_000
    assert len(FILES) <= MOST_FILES_A_CODEC * len(CODECS)
    assert {Path(name).parent.name for name in FILES} == set(CODECS)


def test_an_input_is_made_small_without_losing_what_it_is_kept_for() -> None:
    def features(raw: bytes) -> frozenset[str]:
        return frozenset(letter for letter in "abc" if letter.encode() in raw)

    assert smallest(b"xxaxxxxxxxbxxcxxx" * 5, {"a", "c"}, features) in (b"ac", b"ca")


@pytest.mark.parametrize("codec", CODECS)
def test_bending_changes_an_input_and_is_the_same_for_the_same_seed(codec: str) -> None:
    raw = seeds(codec)[-1]
    results = {bent(codec, raw, Random(number)) for number in range(20)}
    assert len(results) > 10
    assert results == {bent(codec, raw, Random(number)) for number in range(20)}
