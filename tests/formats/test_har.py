"""HAR 1.2: the real files of five recorders, one entry per case, and hostile bytes."""

import json
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from outlay.formats.codec import FormatError, Item
from outlay.formats.har import CODEC
from outlay.interaction import NOTE_KINDS, Interaction, Note
from outlay.stages import check_stage, entry, may_hold_model_time
from outlay.units import NS_PER_MS, from_ms

DATA = Path(__file__).parent.parent / "data" / "har"
FILES = sorted(path.name for path in DATA.glob("*.har"))
NOTHING: frozenset[str] = frozenset()
UNSPLIT = "uplink.floor..downlink"

TIMINGS = {"blocked": 1, "dns": 2, "connect": 30, "ssl": 20, "send": 4, "wait": 50, "receive": 6}


def read(name: str) -> list[Item]:
    return list(CODEC.parse((DATA / name).read_bytes(), NOTHING))


def interactions(items: list[Item]) -> list[Interaction]:
    return [item for item in items if isinstance(item, Interaction)]


def raw_entries(name: str) -> list[dict[str, object]]:
    entries: list[dict[str, object]] = json.loads((DATA / name).read_bytes())["log"]["entries"]
    return entries


def wire(
    *,
    url: str = "https://api.example.org/v1/chat",
    method: str = "POST",
    time: object = 93,
    timings: object = TIMINGS,
    started: object = "2026-02-25T10:00:00.500+01:00",
    **response: object,
) -> dict[str, object]:
    """An entry whose phases sum to its time: 1 + 2 + 30 + 4 + 50 + 6 = 93."""
    return {
        "startedDateTime": started,
        "time": time,
        "request": {"method": method, "url": url, "httpVersion": "h2", "bodySize": 120},
        "response": {"status": 200, "httpVersion": "h2", "bodySize": 900, "redirectURL": "", **response},
        "timings": timings,
    }


def parse(*entries: object) -> list[Item]:
    return list(CODEC.parse(json.dumps({"log": {"version": "1.2", "entries": entries}}).encode(), NOTHING))


def one(entry: object) -> Interaction:
    (item,) = parse(entry)
    assert isinstance(item, Interaction)
    return item


def rows_ms(interaction: Interaction) -> list[tuple[str, float]]:
    """What each mark ends, and how long it took."""
    assert interaction.start_ns is not None
    instants = [interaction.start_ns, *(mark.at_ns for mark in interaction.marks)]
    durations = [(later - earlier) / NS_PER_MS for earlier, later in pairwise(instants)]
    names = [entry(str(mark.component), str(mark.stage)) for mark in interaction.marks]
    return list(zip(names, durations, strict=True))


def kinds(item: Interaction) -> list[str]:
    return [note.kind for note in item.notes]


@pytest.mark.parametrize("name", FILES)
def test_in_real_files_the_parts_sum_to_the_time_with_tls_inside_connect(name: str) -> None:
    entries = raw_entries(name)
    calls = interactions(read(name))
    assert len(calls) == len(entries)
    for raw, call in zip(entries, calls, strict=True):
        if raw["time"] is None or call.start_ns is None or call.end_ns is None:
            continue
        total_ns = from_ms(raw["time"])  # type: ignore[arg-type]
        assert call.end_ns - call.start_ns == total_ns
        assert abs(call.marks[-1].at_ns - call.end_ns) <= NS_PER_MS
        assert kinds(call) in ([], ["no-first-output"])


@pytest.mark.parametrize("name", FILES)
def test_in_real_files_every_mark_stands_for_a_phase_that_applied(name: str) -> None:
    for raw, call in zip(raw_entries(name), interactions(read(name)), strict=True):
        timings = raw["timings"]
        assert isinstance(timings, dict)
        applied = {phase for phase, value in timings.items() if value is not None and value >= 0}
        assert {mark.name for mark in call.marks} == applied & set(TIMINGS)
        instants = [call.start_ns, *(mark.at_ns for mark in call.marks)] if call.marks else []
        assert instants == sorted(instants)  # type: ignore[type-var]
        assert all(check_stage(str(mark.stage)) for mark in call.marks)


@pytest.mark.parametrize("name", FILES)
def test_ids_are_unique_in_a_file_and_hold_no_query_string(name: str) -> None:
    ids = [call.id for call in interactions(read(name))]
    assert len(set(ids)) == len(ids)
    assert not any(mark in id_ for id_ in ids for mark in "?#;=")


def test_firefox_without_a_time_is_measured_by_its_parts() -> None:
    calls = interactions(read("firefox_www.nghttp2.org.har"))
    lengths_ms = [None if call.end_ns is None else (call.end_ns - (call.start_ns or 0)) / NS_PER_MS for call in calls]
    assert lengths_ms == [197, None, 89, 47, 89, 61, 61, 95, 95, 91]  # the second has status 0 and no timings
    assert (calls[1].outcome, kinds(calls[1])) == ("error", ["missing-value"])


def test_the_redirect_loop_is_flagged_once() -> None:
    """Its 11 addresses all differ (25, 24, ... 14): the recorder gave up, no browser would go on either."""
    notes = [item for item in read("capture-har_redirect-loop.har") if isinstance(item, Note)]
    assert [note.kind for note in notes] == ["overlapping-attempts"]
    last = interactions(read("capture-har_redirect-loop.har"))[-1]
    assert last.outcome == "error"  # status 302, and "Max redirects exceeded" beside it


@pytest.mark.parametrize("name", [name for name in FILES if not name.startswith("capture-har")])
def test_no_other_file_has_one(name: str) -> None:
    assert not any(isinstance(item, Note) for item in read(name))


@pytest.mark.parametrize(
    ("name", "region", "wait_ms", "streamed"),
    [
        ("llm_bedrock_3264752613.har", "us-east-1", 17_345, True),
        ("llm_bedrock_3453170410.har", "us-east-1", 21_665, True),
        ("llm_bedrock_4151747984.har", "ap-south-1", 8_510, False),  # application/json: answered in one piece
    ],
)
def test_llm_calls_are_one_row_and_claim_no_first_token(name: str, region: str, wait_ms: int, streamed: bool) -> None:
    (call,) = interactions(read(name))
    host = f"bedrock-agent-runtime.{region}.amazonaws.com"
    assert call.dimensions["site"] == host
    took = {row: ms for row, ms in rows_ms(call) if ms}
    assert took == {f"{host}/{UNSPLIT}": wait_ms}
    assert all(may_hold_model_time(row) for row in took)
    assert kinds(call) == (["no-first-output"] if streamed else [])
    assert "connection" not in call.dimensions  # the recorder times no connection, so it does not know


def test_phases_pass_in_order_and_each_has_its_stage() -> None:
    call = one(wire())
    assert rows_ms(call) == [
        ("client/queue.wait", 1),
        ("client/uplink.dns", 2),
        ("client/uplink.connect", 10),  # 30 - 20 of TLS
        ("client/uplink.tls", 20),
        ("client/uplink.send", 4),
        (f"api.example.org/{UNSPLIT}", 50),
        ("client/downlink", 6),
    ]
    # 2026-02-25T09:00:00.5Z is 1 772 010 000.5 s after 1970.
    assert call.start_ns == 1_772_010_000_500_000_000
    assert call.end_ns == 1_772_010_000_593_000_000
    assert call.clock == "browser"
    assert call.notes == ()
    assert call.sizes == {"request_bytes": 120, "response_bytes": 900}


@pytest.mark.parametrize(
    ("changes", "rows"),
    [
        ({"dns": -1}, [("uplink.connect", 10), ("uplink.tls", 20)]),
        ({"dns": 0}, [("uplink.dns", 0), ("uplink.connect", 10), ("uplink.tls", 20)]),
        ({"dns": -1, "connect": -1, "ssl": -1}, []),
        ({"dns": -1, "ssl": 0}, [("uplink.connect", 30), ("uplink.tls", 0)]),
        ({"dns": -1, "ssl": -1}, [("uplink.connect..uplink.tls", 30)]),  # https: the handshake is in there somewhere
        ({"dns": None, "ssl": None}, [("uplink.connect..uplink.tls", 30)]),
        ({"dns": -1, "ssl": 45}, [("uplink.connect", 0), ("uplink.tls", 30)]),  # cut to connect
        ({"dns": -1, "connect": -1, "ssl": 20}, []),  # outside of any connect
        (
            {"dns": 0.0625, "connect": 0.3, "ssl": 0.1},
            [("uplink.dns", 0.0625), ("uplink.connect", 0.2), ("uplink.tls", 0.1)],
        ),
    ],
)
def test_a_phase_that_did_not_apply_has_no_mark(changes: dict[str, object], rows: list[tuple[str, float]]) -> None:
    call = one(wire(time=None, timings={**TIMINGS, **changes}))
    setup = [(row.removeprefix("client/"), ms) for row, ms in rows_ms(call) if "uplink" in row]
    assert setup == [*rows, ("uplink.send", 4), (f"api.example.org/{UNSPLIT}", 50)]


def test_without_tls_in_the_address_connect_is_the_transport_alone() -> None:
    call = one(wire(url="http://api.example.org/", time=None, timings={"connect": 30, "ssl": -1, "wait": 5}))
    assert rows_ms(call) == [("client/uplink.connect", 30), (f"api.example.org/{UNSPLIT}", 5)]


@pytest.mark.parametrize(
    ("time", "length_ms", "notes"),
    [
        (93, 93, []),
        (94, 94, []),  # 1 ms may be rounding
        (94.001, 94.001, ["contradiction"]),
        (92.5, 93, []),  # no phase may outlast the end
        (95, 95, ["contradiction"]),  # 2 ms that nobody names
        (80, 93, ["contradiction"]),
        (None, 93, []),
        (-1, 93, []),
        (-7, 93, ["missing-value"]),
        (0, 93, ["contradiction"]),
    ],
)
def test_the_time_is_the_total_unless_the_parts_say_more(time: object, length_ms: float, notes: list[str]) -> None:
    call = one(wire(time=time))
    assert call.start_ns is not None
    assert call.end_ns == call.start_ns + from_ms(length_ms)
    assert call.marks[-1].at_ns == call.start_ns + 93 * NS_PER_MS
    assert kinds(call) == notes


def test_a_contradiction_names_both_numbers() -> None:
    (note,) = one(wire(time=250)).notes
    assert "250 ms" in note.text
    assert "93.0 ms" in note.text


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"ssl": 45}, "contradiction"),
        ({"connect": -1, "ssl": 45}, "contradiction"),
        ({"wait": -3}, "missing-value"),
        ({"blocked": -0.01}, "missing-value"),
    ],
)
def test_odd_phases_are_noted_and_never_negative(changes: dict[str, object], kind: str) -> None:
    call = one(wire(time=None, timings={**TIMINGS, **changes}))
    assert kinds(call) == [kind]
    assert all(ms >= 0 for _, ms in rows_ms(call))


@pytest.mark.parametrize("started", [None, "", "yesterday", "2026-02-25", "9999-12-31T23:59:59Z"])
def test_without_a_start_it_counts_but_is_not_measured(started: object) -> None:
    call = one(wire(started=started))
    assert (call.start_ns, call.end_ns, call.marks) == (None, None, ())
    assert kinds(call) == ["missing-value"]


@pytest.mark.parametrize(
    ("response", "outcome"),
    [
        ({"status": 200}, "ok"),
        ({"status": 304}, "ok"),
        ({"status": 400}, "error"),
        ({"status": 503}, "error"),
        ({"status": 0}, "error"),
        ({"status": None}, "error"),
        ({"status": -1}, "error"),
        ({"status": 0, "_error": "net::ERR_ABORTED"}, "aborted"),
        ({"status": 200, "_error": "net::ERR_ABORTED"}, "aborted"),  # left while the body was coming
        ({"status": 0, "_error": "net::ERR_CONNECTION_TIMED_OUT"}, "timeout"),
        ({"status": 0, "_error": "net::ERR_BLOCKED_BY_CLIENT"}, "unsent"),
        ({"status": 0, "_error": "net::ERR_FAILED"}, "error"),
        ({"status": 302, "_error": {"code": "MAXREDIRECTS"}}, "error"),
        ({"status": 200, "_error": None}, "ok"),
        ({"status": 200, "_error": ""}, "ok"),
    ],
)
def test_outcomes(response: dict[str, Any], outcome: str) -> None:
    assert one(wire(**response)).outcome == outcome


def test_an_entry_without_a_response_failed() -> None:
    entry = {key: value for key, value in wire().items() if key != "response"}
    assert one(entry).outcome == "error"


@pytest.mark.parametrize(
    "mime", ["text/event-stream", "Text/Event-Stream; charset=utf-8", "application/vnd.amazon.eventstream"]
)
@pytest.mark.parametrize(("receive", "where"), [(0, "sits in wait"), (400, "")])
def test_a_streamed_answer_shows_no_first_token(mime: str, receive: int, where: str) -> None:
    """What arrives after the first byte is the model at work as much as the network."""
    call = one(wire(content={"mimeType": mime}, time=None, timings={"wait": 70, "receive": receive}))
    assert rows_ms(call) == [
        (f"api.example.org/{UNSPLIT}", 70),
        ("api.example.org/infer.decode..downlink", receive),
    ]
    (note,) = call.notes
    assert note.kind == "no-first-output"
    assert where in note.text


@pytest.mark.parametrize(
    ("url", "id_", "site"),
    [
        ("https://Api.Example.org/v1/chat?api_key=hunter2#token=hunter2", "0 POST /v1/chat", "api.example.org"),
        ("https://user:hunter2@example.org:8443", "0 POST /", "example.org"),
        ("https://example.org/a;key=hunter2/b;k=hunter2", "0 POST /a/b", "example.org"),
        ("wss://example.org/live?x=hunter2", "0 POST /live", "example.org"),
        ("data:text/plain;base64,hunter2", "0 POST data:", None),
        ("blob:https://example.org/hunter2", "0 POST blob:", None),
        ("", "0 POST :", None),
    ],
)
def test_nothing_is_kept_that_may_hold_a_secret(url: str, id_: str, site: str | None) -> None:
    call = one(wire(url=url))
    assert call.id == id_
    assert call.dimensions.get("site") == site
    assert "hunter2" not in repr(call)


@pytest.mark.parametrize(
    ("said", "version"),
    [("h2", "2"), ("HTTP/1.1", "1.1"), ("http/2.0", "2"), ("h3", "3"), ("unknown", None), ("me:", None), (None, None)],
)
def test_the_http_version_reads_the_same_from_every_recorder(said: object, version: str | None) -> None:
    entry = wire(httpVersion=said)
    request = entry["request"]
    assert isinstance(request, dict)
    request["httpVersion"] = said
    assert one(entry).dimensions.get("http.version") == version


def test_connections_are_new_or_reused_when_the_recorder_looks_at_them() -> None:
    warm = {**TIMINGS, "dns": -1, "connect": -1, "ssl": -1}
    items = parse(wire(), wire(time=None, timings=warm), wire(time=None, timings=warm, status=0))
    assert [call.dimensions.get("connection") for call in interactions(items)] == ["new", "reused", None]
    assert "connection" not in one(wire(time=None, timings=warm)).dimensions


@pytest.mark.parametrize(("said", "mime"), [("image/png", "image/png"), ("x-unknown", None), ("", None), (None, None)])
def test_the_media_type_is_a_dimension_when_the_response_names_one(said: object, mime: str | None) -> None:
    assert one(wire(content={"mimeType": said})).dimensions.get("mime") == mime


def test_unknown_sizes_are_absent() -> None:
    assert one(wire(bodySize=-1)).sizes == {"request_bytes": 120}


def redirect(url: str, target: str, **response: object) -> dict[str, object]:
    return wire(url=url, method="GET", status=302, redirectURL=target, **response)


A, B, C = "https://example.org/a", "https://example.org/b", "https://example.org/c"


@pytest.mark.parametrize(
    ("entries", "flagged"),
    [
        ([redirect(A, B), wire(url=B)], 0),
        ([redirect(A, B), redirect(B, A), wire(url=A)], 1),
        ([redirect(A, "/b"), redirect(B, "/a#top"), redirect(A, "/b"), redirect(B, "/a")], 1),  # round and round: once
        ([redirect(A, A), wire(url=A)], 1),
        ([redirect(A, B), wire(url=C), redirect(B, A), wire(url=A)], 1),  # others in between
        ([redirect(A, B), wire(url=B), redirect(A, B), wire(url=B)], 0),  # the same page twice
        ([redirect(A, A), redirect(B, B)], 2),
        ([redirect(f"{A}/{hop}", f"{A}/{hop + 1}") for hop in range(5)], 0),
        ([redirect(f"{A}/{hop}", f"{A}/{hop + 1}") for hop in range(20)], 1),
        ([redirect(A, ""), wire(url=A), redirect(A, "http://[")], 0),
    ],
)
def test_redirects_in_a_circle_are_flagged_once(entries: list[object], flagged: int) -> None:
    notes = [item for item in parse(*entries) if isinstance(item, Note)]
    assert [note.kind for note in notes] == ["overlapping-attempts"] * flagged


@pytest.mark.parametrize(
    "bad",
    [
        7,
        {},
        {"request": {}},
        wire(timings={"wait": "long"}),
        wire(timings={"wait": 1e300}),
        wire(time=9e15),  # 9e21 ns
        wire(time=None, timings={"blocked": 8e12, "wait": 8e12}),  # each fits 63 bits, the sum does not
        wire(url="http://[::1"),
        wire(started=5),
    ],
)
def test_an_entry_that_cannot_be_read_is_dropped_and_the_others_survive(bad: object) -> None:
    first, middle, last = parse(wire(), bad, wire())
    assert isinstance(first, Interaction)
    assert isinstance(middle, Note)
    assert middle.kind == "dropped-record"
    assert "entry 1" in middle.text
    assert isinstance(last, Interaction)
    assert last.id == "2 POST /v1/chat"


@pytest.mark.parametrize(
    "value", [None, 3, "x", [], {}, {"log": 3}, {"log": {}}, {"log": {"entries": 5}}, [{"log": {}}]]
)
def test_other_json_is_not_this_format(value: object) -> None:
    assert not CODEC.recognises(value)
    with pytest.raises(FormatError, match="expected HAR"):
        list(CODEC.parse(json.dumps(value).encode(), NOTHING))


@pytest.mark.parametrize("name", FILES)
def test_real_files_are_recognised(name: str) -> None:
    assert CODEC.recognises(json.loads((DATA / name).read_bytes()))


def test_a_har_without_entries_is_empty() -> None:
    assert parse() == []


SMALL = (DATA / "llm_bedrock_4151747984.har").read_bytes().strip()


def test_a_file_cut_at_any_byte_is_a_format_error() -> None:
    for length in range(len(SMALL)):
        with pytest.raises(FormatError):
            list(CODEC.parse(SMALL[:length], NOTHING))


def survived(raw: bytes) -> Iterator[Item]:
    try:
        yield from CODEC.parse(raw, NOTHING)
    except FormatError:
        return


def check(items: Iterator[Item]) -> None:
    for item in items:
        assert isinstance(item, Interaction | Note)
        notes = item.notes if isinstance(item, Interaction) else (item,)
        assert all(note.kind in NOTE_KINDS for note in notes)
        if isinstance(item, Interaction) and item.start_ns is not None:
            instants = [item.start_ns, *(mark.at_ns for mark in item.marks)]
            assert instants == sorted(instants)
            assert item.end_ns is None or instants[-1] <= item.end_ns
            assert all(check_stage(str(mark.stage)) for mark in item.marks)


NUMBERS = st.none() | st.integers(-2, 10**6) | st.floats(allow_nan=False, allow_infinity=False)
TEXTS = st.sampled_from(["", "text/event-stream", "h2", A, "//", "http://[", "2026-02-25T10:00:00Z"]) | st.text(
    max_size=6
)
PHASES: st.SearchStrategy[Mapping[str, object]] = st.fixed_dictionaries({}, optional=dict.fromkeys(TIMINGS, NUMBERS))


@settings(max_examples=150, deadline=None)
@given(PHASES, NUMBERS, TEXTS, TEXTS, TEXTS, NUMBERS)
def test_phases_never_run_backwards(
    timings: object, time: object, url: str, started: str, redirected: str, status: object
) -> None:
    entry = wire(url=url, time=time, timings=timings, started=started, redirectURL=redirected, status=status)
    check(iter(parse(entry, wire(timings=timings, time=time), entry)))


LEAVES = st.booleans() | NUMBERS | TEXTS
KEYS = st.sampled_from(
    ["log", "entries", "request", "response", "timings", "time", "url", "startedDateTime", "content"]
)
JSON = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=6), max_leaves=15
)


@settings(max_examples=150, deadline=None)
@given(JSON)
def test_any_json_raises_at_most_a_format_error(value: object) -> None:
    CODEC.recognises(value)
    check(survived(json.dumps(value).encode()))
    check(survived(json.dumps({"log": {"entries": [value, wire()]}}).encode()))


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=60), st.integers(0, len(SMALL)), st.integers(0, 8))
def test_any_bytes_in_a_real_file_raise_at_most_a_format_error(noise: bytes, place: int, cut: int) -> None:
    check(survived(SMALL[:place] + noise + SMALL[place + cut :]))
    check(survived(noise))


def test_deep_nesting_is_a_format_error() -> None:
    with pytest.raises(FormatError, match="too deep"):
        list(CODEC.parse(b'{"log":{"entries":[' + b"[" * 100_000 + b"]" * 100_000 + b"]}}", NOTHING))
