"""Finding the format by the content: every file of the test data, every packing, every way to stream it."""

import gzip
import io
import json
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from io import BytesIO
from itertools import chain
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from outlay.formats.codec import FormatError, Item, Shard
from outlay.formats.reading import BLOCK, JSON_CODECS, Reading, known_formats, read, splits
from outlay.interaction import Interaction, Note
from outlay.load import Load
from outlay.trace import TraceSpan

DATA = Path(__file__).parents[1] / "data"
SECRET = "what the person said"


def reading(raw: bytes, shard: Shard | None = None) -> Reading:
    return read(BytesIO(raw), frozenset(), shard)


def items(raw: bytes, shard: Shard | None = None) -> list[Item]:
    return list(reading(raw, shard).items)


def refusal(raw: bytes) -> str:
    with pytest.raises(FormatError) as caught:
        items(raw)
    return str(caught.value)


# Every file

HAR, JAEGER, ZIPKIN, LANGFUSE = "har", "jaeger", "zipkin", "langfuse"
OTLP, SDK, VLLM, LOG = "otlp-json", "sdk-spans", "vllm-requests", "outlay-log"
AIPERF, GUIDELLM, LLMPERF = "aiperf", "guidellm", "llmperf"
PERF, BENCH = "inference-perf", "vllm-bench"
CRISP = (*range(2, 19), "err_pattern1/err1", "err_pattern1/err2")

# Of each file under tests/data, its format and how many records it holds.
FILES: dict[str, tuple[str, int]] = {
    **{f"aiperf-exports/qwen_concurrency{number}/profile_export.jsonl": (AIPERF, 10) for number in (1, 2)},
    "har/browsertime_sitespeed.io.har": (HAR, 27),
    "har/capture-har_redirect-loop.har": (HAR, 11),
    "har/chrome_github.com_home.har": (HAR, 20),
    "har/chrome_h2_www.nghttp2.org.har": (HAR, 11),
    "har/firefox_www.nghttp2.org.har": (HAR, 10),
    "har/llm_bedrock_3264752613.har": (HAR, 1),
    "har/llm_bedrock_3453170410.har": (HAR, 1),
    "har/llm_bedrock_4151747984.har": (HAR, 1),
    "har/wpt_h2_www.nghttp2.org.har": (HAR, 20),
    **{
        f"inference-perf-kubecon25/{config}/stage_{stage}_lifecycle_metrics.json": (PERF, 1)
        for config in ("vllm", "vllm+batch_size", "vllm+eagle", "vllm+v0_engine")
        for stage in range(7)
    },
    "inference-perf-kubecon25/vllm+v0_engine/summary_lifecycle_metrics.json": (PERF, 1),
    **{
        f"llmperf-leaderboard/individual/{model}.json": (LLMPERF, records)
        for model, records in {
            "anyscale_13b": 150,
            "bedrock_13b": 150,
            "lepton_13b": 150,
            "replicate_70b": 145,
        }.items()
    },
    "outlay-log/interaction-1.jsonl": (LOG, 20),
    "outlay-log/load-1.jsonl": (LOG, 7),
    **{
        f"traces-jaeger/crisp/{case}.json": (JAEGER, spans)
        for case, spans in zip(CRISP, (2, 2, 3, 4, 4, 3, 3, 4, 4, 2, 4, 4, 4, 7, 7, 4, 9, 2, 2), strict=True)
    },
    "traces-jaeger/genaiTestTrace.json": (JAEGER, 57),
    "traces-jaeger/spanAmongEachOtherGroupedAndSpans.json": (JAEGER, 17),
    "traces-jaeger/spanLongerAsParent.json": (JAEGER, 8),
    "traces-jaeger/spansAmongEachOther.json": (JAEGER, 12),
    "traces-jaeger/spansAmongEachOtherGrouped.json": (JAEGER, 15),
    "traces-jaeger/testTrace.json": (JAEGER, 11),
    "traces-jaeger/testTraceNormal.json": (JAEGER, 5),
    "traces-jaeger/traceWithMultipleSpansWithTheSameValueInDifferentTags.json": (JAEGER, 4),
    "traces-jaeger/traceWithOverlappingChildren.json": (JAEGER, 3),
    "traces-jaeger/traceWithOverlappingChildrenLongerThanParent.json": (JAEGER, 4),
    "traces-jaeger/traceWithSingleChildLongerThanParentAndStartsAfterParent.json": (JAEGER, 2),
    "traces-jaeger/traceWithThreeShortChildren.json": (JAEGER, 4),
    "traces-jaeger/traceWithThreeShortOverlappingChildren.json": (JAEGER, 4),
    "traces-jaeger/traceWithTwoChildrenStartedAtTraceStart.json": (JAEGER, 3),
    "traces-jaeger/traceWithTwoNonOverlappingChildren.json": (JAEGER, 3),
    "traces-langfuse/beeai-2025-08-01.json": (LANGFUSE, 29),
    "traces-langfuse/claude-agent-2025-12-22.json": (LANGFUSE, 7),
    "traces-langfuse/csharp-agent-with-gemini-2026-03-09.json": (LANGFUSE, 8),
    "traces-langfuse/google-adk-2025-08-28.json": (LANGFUSE, 5),
    "traces-langfuse/langgraph-python-2025-08-22.json": (LANGFUSE, 9),
    "traces-otlp/genai_code_review_workflow.json": (SDK, 15),
    "traces-otlp/genai_customer_support_escalation.json": (SDK, 9),
    "traces-otlp/genai_fan_in_dependencies.json": (SDK, 4),
    "traces-otlp/genai_parallel_requests.json": (SDK, 5),
    "traces-otlp/otlp2jaeger-in-error.json": (OTLP, 1),
    "traces-otlp/otlp2jaeger-in.json": (OTLP, 2),
    "traces-otlp/otlp2jaeger-multi-in-combined.json": (OTLP, 4),
    "traces-otlp/otlp2jaeger-out.json": (JAEGER, 2),
    "traces-otlp/otlp_proto_example_trace.json": (OTLP, 1),
    "traces-otlp/vercel_ai_sdk_spans.json": (SDK, 10),
    "traces-zipkin/ascend.json": (ZIPKIN, 8),
    "traces-zipkin/envoy.json": (ZIPKIN, 1),
    "traces-zipkin/messaging-kafka.json": (ZIPKIN, 28),
    "traces-zipkin/messaging.json": (ZIPKIN, 4),
    "traces-zipkin/messaging2.json": (ZIPKIN, 11),
    "traces-zipkin/simple-db-p6.json": (ZIPKIN, 5),
    "traces-zipkin/skew.json": (ZIPKIN, 4),
    "traces-zipkin/yelp.json": (ZIPKIN, 16),
    "vllm-requests/RTX4090__Llama-3.1-8B__requests.jsonl": (VLLM, 300),
    "vllm-requests/RTXPRO6000__Llama-3.1-8B__requests.jsonl": (VLLM, 300),
}

# Beside the data stand licences, origins, and what a benchmark says of itself: none of it is taken for data.
REFUSED = {
    ".md": "text",
    ".txt": "text",
    ".csv": "text",
    "meta.json": "no known format: an object with schema_version",
    "profile_export_aiperf.json": "no known format: an object with request_throughput",
    # Recorded arrivals are something to replay, not a measurement.
    "conversation_first500.jsonl": "no known format: an object with timestamp",
    "faas_coldstart_aws_scatter.json": "no known format: an object with points",
    "guidellm_report_v2.json": "saved without its requests",
    **{
        f"summary/{model}.json": "no known format: an object with version"
        for model in ("anyscale_13b", "bedrock_13b", "lepton_13b", "replicate_70b")
    },
}


def named(path: Path) -> str:
    return str(path.relative_to(DATA))


def is_refused(name: str) -> bool:
    return name.endswith(tuple(REFUSED))


ALL = sorted(named(path) for path in DATA.rglob("*") if path.is_file())


def test_the_table_holds_every_file() -> None:
    assert sorted(FILES) == [name for name in ALL if not is_refused(name)]


@pytest.mark.parametrize(("name", "expected"), FILES.items())
def test_a_file_is_what_its_content_says(name: str, expected: tuple[str, int]) -> None:
    found = reading((DATA / name).read_bytes())
    records = [item for item in found.items if not isinstance(item, Note)]
    assert (found.format, len(records)) == expected


@pytest.mark.parametrize("name", [name for name in ALL if is_refused(name)])
def test_what_stands_beside_the_data_is_refused(name: str) -> None:
    said = next(said for ending, said in REFUSED.items() if name.endswith(ending))
    assert said in refusal((DATA / name).read_bytes())


# One of each format, small enough to be read in every way.
SAMPLES = {
    form: (DATA / name).read_bytes()
    for form, name in {
        LOG: "outlay-log/interaction-1.jsonl",
        OTLP: "traces-otlp/otlp2jaeger-multi-in-combined.json",
        VLLM: "vllm-requests/RTX4090__Llama-3.1-8B__requests.jsonl",
        HAR: "har/chrome_h2_www.nghttp2.org.har",
        JAEGER: "traces-jaeger/testTrace.json",
        LANGFUSE: "traces-langfuse/google-adk-2025-08-28.json",
        SDK: "traces-otlp/genai_parallel_requests.json",
        ZIPKIN: "traces-zipkin/yelp.json",
        AIPERF: "aiperf-exports/qwen_concurrency1/profile_export.jsonl",
        LLMPERF: "llmperf-leaderboard/individual/anyscale_13b.json",
        PERF: "inference-perf-kubecon25/vllm+v0_engine/stage_4_lifecycle_metrics.json",
    }.items()
}
SAMPLES[BENCH] = json.dumps(
    {
        "backend": "vllm",
        "request_rate": 10.0,
        "burstiness": 1.0,
        "max_concurrency": 1,
        "duration": 4.5,
        "completed": 9,
        "failed": 0,
        "request_throughput": 2.0,
        "ttfts": [0.5] * 9,
        "itls": [[0.1]] * 9,
        "input_lens": [5] * 9,
        "output_lens": [2] * 9,
        "errors": [""] * 9,
        "start_times": [0.6 * k for k in range(9)],
        "queue_times": [0.5 * k for k in range(9)],
    }
).encode()
SAMPLES[GUIDELLM] = json.dumps(
    {
        "benchmarks": [
            {
                "requests": {
                    "successful": [
                        {
                            "request_id": f"r{number}",
                            "info": {"timings": {"targeted_start": number, "request_start": number, "request_end": 9}},
                        }
                        for number in range(9)
                    ]
                }
            }
        ]
    }
).encode()
SAMPLES["chrome"] = json.dumps(
    {"traceEvents": [{"ph": "X", "name": "task", "ts": 1.5, "dur": 2, "pid": 1, "tid": number} for number in range(9)]}
).encode()
SAMPLES["otlp-protobuf"] = b"".join(
    TracesData(
        resource_spans=[
            {"scope_spans": [{"spans": [{"trace_id": bytes([trace]), "span_id": b"s", "start_time_unix_nano": 1}]}]}
        ]
    ).SerializeToString()
    for trace in range(1, 9)
)
DOCUMENTS = [form for form in SAMPLES if form not in (LOG, VLLM, AIPERF, "otlp-protobuf")]
JSON_FORMATS = [form for form in SAMPLES if form != "otlp-protobuf"]

by_format = pytest.mark.parametrize("form", SAMPLES)


def test_there_is_a_sample_of_every_format() -> None:
    assert sorted(SAMPLES) == sorted(name for name, _ in known_formats())


@by_format
def test_each_sample_is_read_whole(form: str) -> None:
    found = reading(SAMPLES[form])
    assert found.format == form
    assert [item for item in found.items if isinstance(item, Note)] == []


@pytest.mark.parametrize("form", DOCUMENTS)
def test_pretty_printed_and_on_one_line_is_the_same(form: str) -> None:
    value = json.loads(SAMPLES[form])
    texts = (json.dumps(value), json.dumps(value) + "\n", json.dumps(value, indent=2), json.dumps(value, indent="\t"))
    first, *others = (items(text.encode()) for text in texts)
    assert len(first) > 0
    assert all(other == first for other in others)


@pytest.mark.parametrize("form", DOCUMENTS)
def test_a_document_a_line_is_each_of_them(form: str) -> None:
    line = json.dumps(json.loads(SAMPLES[form]))
    found = reading(f"{line}\n\n{line}\r\n{line}".encode())
    assert found.format == form
    assert list(found.items) == 3 * items(line.encode())


def test_lines_of_records_and_a_list_of_them_are_the_same() -> None:
    records = [json.loads(line) for line in SAMPLES[VLLM].splitlines()]
    assert items(json.dumps(records).encode()) == items(json.dumps(records, indent=1).encode()) == items(SAMPLES[VLLM])


@pytest.mark.parametrize("form", JSON_FORMATS)
@pytest.mark.parametrize("before", [b"\xef\xbb\xbf", b"\n", b" \t ", b"\r\n\r\n\n", b"\xef\xbb\xbf\n\n", b"\n" * 3000])
def test_a_byte_order_mark_and_blank_lines_may_come_first(form: str, before: bytes) -> None:
    assert items(before + SAMPLES[form]) == items(SAMPLES[form])


def test_a_bad_line_is_named_by_its_number_and_the_rest_survives() -> None:
    line = json.dumps(json.loads(SAMPLES[ZIPKIN])).encode()
    found = items(b"\n".join([b"", line, b"{", line, b'{"said":"' + SECRET.encode() + b'"}', line]))
    assert [item.text.partition(":")[0] for item in found if isinstance(item, Note)] == ["line 3", "line 5"]
    assert SECRET not in repr(found)
    assert len(found) == 2 + 3 * len(items(line))


# Packing

PACK: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "gzip of many members": lambda raw: gzip.compress(raw[:5]) + gzip.compress(b"") + gzip.compress(raw[5:]),
    "gzip with zeros behind": lambda raw: gzip.compress(raw) + bytes(512),  # as tape archives are padded
    "zstd": zstandard.compress,
    "zstd of many frames": lambda raw: b"".join(zstandard.compress(part) for part in (raw[:1], b"", raw[1:9], raw[9:])),
    "zstd with a size": zstandard.ZstdCompressor(write_content_size=True, write_checksum=True).compress,
    "zstd without a size": lambda raw: zstandard.ZstdCompressor().compressobj().compress(b"") + _streamed(raw),
    "zstd behind a skippable frame": lambda raw: b"\x52\x2a\x4d\x18\x03\0\0\0abc" + zstandard.compress(raw),
    "zstd before a skippable frame": lambda raw: zstandard.compress(raw) + b"\x50\x2a\x4d\x18\x03\0\0\0abc",
}


def _streamed(raw: bytes) -> bytes:
    packer = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    return packer.compress(raw) + packer.flush()


by_packing = pytest.mark.parametrize("pack", PACK)


@by_format
@by_packing
def test_packed_is_as_plain(form: str, pack: str) -> None:
    found = reading(PACK[pack](SAMPLES[form]))
    assert found.format == form
    assert list(found.items) == items(SAMPLES[form])


@pytest.mark.parametrize("pack", ["gzip", "zstd"])
def test_packed_input_cut_at_every_byte_is_refused(pack: str) -> None:
    """Never fewer records in silence. Only the four bytes that name a packing are too few to tell."""
    packed = PACK[pack](SAMPLES["chrome"])
    for end in range(4, len(packed)):
        assert refusal(packed[:end]).startswith("the compressed input is damaged: ")


@pytest.mark.parametrize("pack", ["gzip", "zstd", "zstd with a size"])
def test_a_damaged_byte_of_packed_input_is_a_format_error_or_not_seen(pack: str) -> None:
    """Zstd without a checksum cannot see every damage; whatever it lets through is read as any bytes are."""
    packed = PACK[pack](SAMPLES[LOG])
    refused = 0
    for at in range(0, len(packed), 41):
        damaged = packed[:at] + bytes([packed[at] ^ 0x5A]) + packed[at + 1 :]
        try:
            items(damaged)
        except FormatError:
            refused += 1
    assert refused > 0


@pytest.mark.parametrize("junk", [b"junk", b"\x1f\x8b", b"\x28\xb5\x2f\xfd"])
@pytest.mark.parametrize("pack", ["gzip", "zstd"])
def test_junk_behind_packed_input_is_refused(pack: str, junk: bytes) -> None:
    assert "the compressed input is damaged" in refusal(PACK[pack](SAMPLES["chrome"]) + junk)


def test_what_came_before_the_damage_was_handed_over() -> None:
    line = SAMPLES[LOG].splitlines()[0] + b"\n"
    packed = gzip.compress(line * (3 * BLOCK // len(line)))[:-20]
    found: list[Item] = []
    with pytest.raises(FormatError, match="damaged"):
        found.extend(reading(packed).items)
    assert len(found) > BLOCK // len(line)


def test_packing_is_undone_once() -> None:
    assert "binary" in refusal(gzip.compress(gzip.compress(SAMPLES[LOG])))


# Streams


class Dribble(io.RawIOBase):
    """A stream that cannot be sought and gives a byte at a time, as a slow pipe does."""

    def __init__(self, raw: bytes) -> None:
        self._raw = BytesIO(raw)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        return self._raw.readinto(memoryview(buffer)[:1])


@by_format
@pytest.mark.parametrize("pack", ["plain", "gzip", "zstd of many frames"])
def test_a_stream_that_dribbles_is_read_as_a_file(form: str, pack: str) -> None:
    raw = SAMPLES[form] if len(SAMPLES[form]) < 50_000 else b"\n".join(SAMPLES[form].splitlines()[:20])
    packed = PACK[pack](raw) if pack in PACK else raw
    assert list(read(Dribble(packed), frozenset()).items) == items(raw)


def test_a_pipe_is_read_to_its_end() -> None:
    packed = gzip.compress(SAMPLES[LOG])
    reader, writer = os.pipe()

    def write() -> None:
        with os.fdopen(writer, "wb", buffering=0) as out:
            for at in range(0, len(packed), 1000):
                out.write(packed[at : at + 1000])

    thread = threading.Thread(target=write)
    thread.start()
    with os.fdopen(reader, "rb") as stream:
        assert list(read(stream, frozenset()).items) == items(SAMPLES[LOG])
    thread.join()


def test_reading_begins_where_the_stream_stands() -> None:
    stream = BytesIO(b"ahead of it" + SAMPLES[LOG])
    stream.seek(len(b"ahead of it"))
    assert list(read(stream, frozenset()).items) == items(SAMPLES[LOG])


# What is no input


BLANK = [b"", b"\n", b" \r\n\t\n", b"\xef\xbb\xbf", b"\n" * 4096]


@pytest.mark.parametrize("raw", [*BLANK, gzip.compress(b""), zstandard.compress(b"\n")])
def test_nothing_but_blanks_is_empty(raw: bytes) -> None:
    assert refusal(raw) == "the input is empty"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({}, "an object with no keys"),
        ({"messages": [SECRET], "model": SECRET}, "an object with messages, model"),
        (dict.fromkeys("abcdefgh"), "an object with a, b, c, d, e, f;"),
        ({"k" * 99: 1}, f"an object with {'k' * 40};"),
        ([], "an empty list"),
        ([SECRET, 2], "a list of 2, first a bare str"),
        ([[{"role": SECRET}]], "a list of 1, first a list of 1, first an object with role"),
        ({"resourceMetrics": []}, "an object with resourceMetrics"),
    ],
)
def test_unknown_json_is_outlined_without_its_content(value: object, said: str) -> None:
    for text in (json.dumps(value), json.dumps(value, indent=2)):
        message = refusal(text.encode())
        assert message.startswith("the JSON is of no known format: ")
        assert said in message
        assert SECRET not in message
        assert all(name in message for name, _ in known_formats())


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (SECRET.encode(), "the input is text, neither JSON nor OTLP protobuf"),
        (f'"{SECRET}"'.encode(), "the input is text, neither JSON nor OTLP protobuf"),
        (b"PAR1\x15\x04", "binary data that begins with b'PAR1'"),
        (b"\x00" * 100, "binary data that begins with"),
        ("[]".encode("utf-16"), "binary data that begins with"),
        (f'{{"said": "{SECRET}"'.encode(), "does not parse as a document, nor line by line"),
        (f'{{}}{{"said": "{SECRET}"}}'.encode(), "does not parse as a document, nor line by line"),
        (b"[" * 100_000, "does not parse as a document, nor line by line"),
        (b"[" * 100_000 + b"]" * 100_000, "does not parse as a document, nor line by line"),
        (b'["\xff"]', "does not parse as a document, nor line by line"),
    ],
)
def test_other_input_is_refused_without_its_content(raw: bytes, said: str) -> None:
    message = refusal(raw)
    assert said in message
    assert SECRET not in message


# Sharing the work


@by_format
@pytest.mark.parametrize("of", [2, 3, 5])
def test_shards_are_disjoint_and_their_union_is_the_whole(form: str, of: int) -> None:
    raw = SAMPLES[form]
    parts = [items(raw, Shard(index, of)) for index in range(of)]
    assert Counter(map(repr, chain.from_iterable(parts))) == Counter(map(repr, items(raw)))


@by_format
def test_a_trace_is_never_cut_between_shards(form: str) -> None:
    lines = json.dumps(json.loads(SAMPLES[form])).encode() if form in DOCUMENTS else SAMPLES[form]
    held = [{key_of(item) for item in items(lines, Shard(index, 3))} for index in range(3)]
    assert sum(map(len, held)) == len(set().union(*held))


def key_of(item: Item) -> str:
    assert isinstance(item, TraceSpan | Interaction | Load)
    if isinstance(item, Load):
        return f"load {item.tool}"
    return item.trace if isinstance(item, TraceSpan) else item.id


def test_a_note_belongs_to_one_shard() -> None:
    raw = b"\n".join([json.dumps(json.loads(SAMPLES[JAEGER])).encode(), b"{", b"}"])
    sharded = [item for index in range(4) for item in items(raw, Shard(index, 4)) if isinstance(item, Note)]
    assert [note.text.partition(":")[0] for note in sharded] == ["line 2", "line 3"]


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (SAMPLES[LOG], True),
        (b"\n\n" + SAMPLES[LOG], True),
        (SAMPLES[VLLM], True),
        (gzip.compress(SAMPLES[VLLM]), True),
        (zstandard.compress(SAMPLES["otlp-protobuf"]), True),
        (SAMPLES["otlp-protobuf"], True),
        # One document, whether on one line or many: every worker would parse all of it.
        *[(json.dumps(json.loads(SAMPLES[form])).encode(), False) for form in DOCUMENTS],
        (json.dumps(json.loads(SAMPLES[JAEGER])).encode() + b"\n", False),
        *[(json.dumps(json.loads(SAMPLES[form]), indent=2).encode(), False) for form in DOCUMENTS],
        *[(b"", False), (b"# text\n# text\n", False), (b"{\n", False)],
        # Damaged input is refused when it is read, and not already here.
        (gzip.compress(SAMPLES[LOG])[:9], False),
        (zstandard.compress(SAMPLES[LOG])[:9], False),
        (b"\x1f\x8b\x09", False),
    ],
)  # fmt: skip
def test_what_several_workers_can_share(raw: bytes, expected: bool) -> None:
    assert splits(BytesIO(raw)) is expected


# Any bytes


def hostile() -> Iterator[bytes]:
    for raw in SAMPLES.values():
        yield b"\n".join(raw.splitlines()[:30])[:4000]


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(list(hostile())), st.data())
def test_bytes_overwritten_in_a_real_input(raw: bytes, data: st.DataObject) -> None:
    bent = bytearray(raw)
    for at in data.draw(st.lists(st.integers(0, len(raw) - 1), max_size=4)):
        bent[at] = data.draw(st.integers(0, 255))
    for packed in (bytes(bent), gzip.compress(bent), zstandard.compress(bytes(bent))):
        with suppress(FormatError):
            assert all(isinstance(item, Interaction | TraceSpan | Load | Note) for item in items(packed))


BEGINNINGS = [b"", b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd", b"{", b"[", b"\x0a", b"\0\0\0\x09\x0a", b"\xef\xbb\xbf"]


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(BEGINNINGS), st.binary(max_size=60))
def test_any_bytes_behind_any_beginning(head: bytes, tail: bytes) -> None:
    splits(BytesIO(head + tail))
    with suppress(FormatError):
        items(head + tail)


def test_every_codec_of_json_is_known_by_its_name() -> None:
    assert [name for name, _ in known_formats()][2:] == [codec.name for codec in JSON_CODECS]
