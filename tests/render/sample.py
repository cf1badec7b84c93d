"""A Report with every shape a renderer must draw. The numbers are made up; their sums are true by construction."""

from dataclasses import replace
from math import inf

from outlay.budget import Budget, Share
from outlay.generator import DEGRADED, INVALID, VALID, GeneratorVerdict, Reason, Slope, Stall, State
from outlay.load import Bound, Load
from outlay.report import (
    Bin,
    Blame,
    Burn,
    CohortRow,
    Driver,
    Duty,
    Failing,
    FailingPart,
    Finding,
    Fine,
    Health,
    ModelGap,
    MomentReport,
    OnTime,
    Percentile,
    Recovery,
    Report,
    Row,
    Segment,
    Sets,
    Shift,
    Slice,
    Slow,
    Source,
    Together,
    Verdict,
    WhatIf,
)
from outlay.stages import term_of
from outlay.units import NS_PER_MS, NS_PER_US

MS, US = NS_PER_MS, NS_PER_US
LONG = "orchestrator-for-regulated-regions-eu-west-canary"


def rows(*cells: tuple[str, int, int, Share | None]) -> tuple[Row, ...]:
    return tuple(
        Row(
            entry=entry,
            term=term_of(entry),
            typical_ns=typical_ns,
            tail_ns=tail_ns,
            budget_ns=share and share.limit_ns,
            owner=share and share.owner,
        )
        for entry, typical_ns, tail_ns, share in cells
    )


Cell = tuple[str, int] | tuple[str, int, int | None] | tuple[str, int, int | None, bool]


def path(*cells: Cell) -> tuple[Segment, ...]:
    """Segments one after the other: entry, duration, and where needed the clock error and whether it is ambiguous."""
    segments, at_ns = [], 0
    for entry, duration_ns, *more in cells:
        error_ns = more[0] if more else 0
        segments.append(
            Segment(entry=entry, start_ns=at_ns, duration_ns=duration_ns, error_ns=error_ns, ambiguous=len(more) > 1)
        )
        at_ns += duration_ns
    return tuple(segments)


def slow(name: str, segments: tuple[Segment, ...], outcome: str = "ok", **dimensions: str) -> Slow:
    return Slow(
        id=name,
        total_ns=sum(segment.duration_ns for segment in segments),
        outcome=outcome,
        dimensions=dimensions,
        segments=segments,
        ambiguous_ns=sum(segment.duration_ns for segment in segments if segment.ambiguous),
    )


def bins(low_ns: float, ratio: float, counts: tuple[int, ...]) -> tuple[Bin, ...]:
    """Adjacent bins, each `ratio` times as wide as the one before."""
    return tuple(
        Bin(low_ns=low_ns * ratio**place, high_ns=low_ns * ratio ** (place + 1), count=count)
        for place, count in enumerate(counts)
    )


def refused(level: float, needs: int, has: int) -> Percentile:
    return Percentile(level=level, value_ns=None, why=f"p{level:g} needs {needs} interactions, there are {has}")


def known(level: float, value_ns: float, low_ns: float, high_ns: float | None) -> Percentile:
    return Percentile(level=level, value_ns=value_ns, interval_ns=(low_ns, high_ns))


VOICE_SHARES = (
    Share(entry="client/uplink*", limit_ns=90 * MS, owner="network"),
    Share(entry="client/downlink*", limit_ns=60 * MS, owner="network"),
    Share(entry="*/hold", limit_ns=200 * MS, owner="voice-settings"),
    Share(entry="asr/*", limit_ns=120 * MS, owner="speech"),
    Share(entry="llm/queue*", limit_ns=50 * MS, owner="platform"),
    Share(entry="llm/infer*", limit_ns=200 * MS, owner="model-serving"),
    Share(entry="*/unattributed*", limit_ns=None, owner="observability"),
)
NETWORK_UP, NETWORK_DOWN, HOLD, ASR, LLM_QUEUE, LLM_INFER, NOBODY = VOICE_SHARES

VOICE_ACCOUNT = rows(
    ("llm/queue.wait", 12 * MS, 486 * MS, LLM_QUEUE),
    ("llm/queue.cold_start", 0, 148 * MS, LLM_QUEUE),
    ("client/uplink.excess", 9 * MS, 131 * MS, NETWORK_UP),
    ("client/uplink.tls", 0, 62 * MS, NETWORK_UP),
    ("client/uplink.connect", 0, 31 * MS, NETWORK_UP),
    ("client/uplink.floor", 38 * MS, 39 * MS, NETWORK_UP),
    ("vad/hold", 200 * MS, 200 * MS, HOLD),
    ("asr/infer", 62 * MS, 96 * MS, ASR),
    ("asr/unattributed.tokenize->dispatch", 6 * MS, 55 * MS, ASR),
    ("engine/unattributed.tokenize->dispatch", 8 * MS, 74 * MS, NOBODY),
    (f"{LONG}/unattributed.policy-check->llm-request", 4 * MS, 9 * MS, NOBODY),
    ("llm/infer.prefill", 96 * MS, 92 * MS, LLM_INFER),
    ("llm/infer.decode", 41 * MS, 43 * MS, LLM_INFER),
    ("moderation/uplink..downlink", 18 * MS, 24 * MS, None),
    ("tts/infer", 51 * MS, 58 * MS, None),
    ("client/downlink.floor", 37 * MS, 38 * MS, NETWORK_DOWN),
    ("client/downlink.excess", 4 * MS, 12 * MS, NETWORK_DOWN),
    ("client/stream", 20 * MS, 40 * MS, None),
    ("client/render", 11 * MS, 11 * MS, None),
    ("gateway/auth", 900 * US, 1_400 * US, None),
    ("gateway/route", 700 * US, 1_900 * US, None),
    ("gateway/admit", 120 * US, 160 * US, None),
    ("client/encode", 1_800 * US, 2_100 * US, None),
    ("client/uplink.dns", 0, 2_700 * US, NETWORK_UP),
)

VOICE_SLOWEST = (
    slow(
        "4bf92f3577b34da6a3ce929d0e0e4736",
        path(
            ("vad/hold", 200 * MS),
            ("client/uplink.connect", 74 * MS),
            ("client/uplink.tls", 146 * MS),
            ("client/uplink.excess", 92 * MS, 11 * MS),
            ("asr/infer", 104 * MS, 11 * MS),
            ("engine/unattributed.tokenize->dispatch", 88 * MS),
            ("moderation/uplink..downlink", 31 * MS, 0, True),
            ("llm/queue.cold_start", 1_640 * MS),
            ("llm/infer.prefill", 94 * MS),
            ("tts/infer", 61 * MS, 0, True),
            ("client/downlink.excess", 44 * MS, 11 * MS),
            ("client/stream", 40 * MS),
            ("client/render", 11 * MS),
        ),
        site="lon",
        version="2026-07-3",
    ),
    slow(
        "00f067aa0ba902b7",
        path(
            ("vad/hold", 200 * MS),
            ("client/uplink.floor", 38 * MS, None),
            ("asr/infer", 81 * MS, None),
            (f"{LONG}/unattributed.policy-check->llm-request", 120 * MS),
            ("llm/queue.wait", 1_212 * MS),
            ("llm/infer.prefill", 97 * MS),
            ("llm/infer.decode", 43 * MS),
            ("client/downlink.floor", 37 * MS, None),
            ("client/render", 12 * MS),
        ),
        outcome="timeout",
        site="fra",
        version="2026-07-4",
    ),
    slow("c0ffee", path(("llm/queue.wait", 1_502 * MS), ("llm/infer", 160 * MS, 0, True)), site="lon"),
)

VOICE = MomentReport(
    moment="voice-turn",
    n=1_200,
    started=1_240,
    effective_n=410.0,
    outcomes={"ok": 1_194, "aborted": 4, "timeout": 2},
    validity="valid",
    validity_why=None,
    total=(
        known(50, 612 * MS, 604 * MS, 621 * MS),
        known(95, 1_010 * MS, 962 * MS, 1_090 * MS),
        known(99, 1_560 * MS, 1_380 * MS, 1_960 * MS),
    ),
    served=(
        known(50, 611 * MS, 603 * MS, 620 * MS),
        known(95, 1_002 * MS, 956 * MS, 1_081 * MS),
        known(99, 1_520 * MS, 1_350 * MS, 1_880 * MS),
    ),
    budget=Budget(
        limit_ns=800 * MS,
        percentile=99,
        thresholds={"noticeable": 500 * MS, "disruptive": 1_500 * MS},
        shares=VOICE_SHARES,
    ),
    on_time=OnTime(share=0.9183, interval=(0.9, 0.9332), over=98),
    verdict=Verdict(state="FAIL", why="98 of 1200 over the limit; the true share is 5.7 % to 11.4 %, 1 % is allowed"),
    typical_ns=sum(row.typical_ns for row in VOICE_ACCOUNT),
    typical_label="mean of 120 around the median",
    tail_ns=sum(row.tail_ns for row in VOICE_ACCOUNT),
    tail_label="mean of the slowest 1 % (12)",
    account=VOICE_ACCOUNT,
    typical_gap=ModelGap(total_ns=sum(row.typical_ns for row in VOICE_ACCOUNT), low_ns=250 * MS, high_ns=268 * MS),
    tail_gap=ModelGap(total_ns=sum(row.tail_ns for row in VOICE_ACCOUNT), low_ns=289 * MS, high_ns=313 * MS),
    bins=bins(
        380 * MS,
        1.06,
        (2, 9, 31, 84, 148, 201, 214, 172, 118, 71, 40, 22, 14, 11, 9, 8, 7, 6, 5, 5, 4, 4, 3, 2, 1, 1, 0, 1, 0, 1),
    ),
    cohorts=(
        CohortRow(
            key={"site": "lon", "version": "2026-07-3"},
            n=702,
            p50=known(50, 601 * MS, 592 * MS, 612 * MS),
            p99=known(99, 1_210 * MS, 1_080 * MS, 1_540 * MS),
            on_time=OnTime(share=0.951, interval=(0.932, 0.965), over=34),
            leading="vad/hold",
        ),
        CohortRow(
            key={"site": "fra", "version": "2026-07-4"},
            n=431,
            p50=known(50, 634 * MS, 618 * MS, 655 * MS),
            p99=known(99, inf, 1_620 * MS, inf),
            on_time=OnTime(share=0.865, interval=(0.829, 0.895), over=58),
            leading="llm/queue.wait",
        ),
        CohortRow(
            key={"site": None, "version": "2026-07-4"},
            n=67,
            p50=known(50, 622 * MS, 580 * MS, 671 * MS),
            p99=refused(99, 299, 67),
            on_time=OnTime(share=0.91, interval=(0.816, 0.959), over=6),
            leading=f"{LONG}/unattributed.policy-check->llm-request",
        ),
    ),
    slowest=VOICE_SLOWEST,
    health=(
        Health(kind="incomplete", count=40, example="trace 9f1c: no mark playout-start"),
        Health(kind="clock-skew", count=212, example="phone-7 against edge-lon: +65.9 ms ± 11.0 ms"),
        Health(kind="missing-value", count=3, example="gen_ai.latency.time_in_queue is -48 s on span a81f"),
    ),
)

# A moment of which everything is known: causes, owners, groups. Of the rows, what sets the p99 in ms where it is not
# half of what the slowest add: the cold start fills the slowest and does not set the p99.
SETS_MS = {"llm/queue.wait": 604, "llm/queue.cold_start": 2, "client/uplink.excess": 41}


def attributed(row: Row) -> Row:
    """A row with what sets the percentile, and intervals of a tenth to either side."""
    known_ms = SETS_MS.get(row.entry)
    sets_ns = (row.typical_ns + row.tail_ns) // 2 if known_ms is None else known_ms * MS
    spread_ns = abs(row.excess_ns) / 10
    return replace(
        row,
        tail_interval_ns=(row.tail_ns - spread_ns, row.tail_ns + spread_ns),
        excess_interval_ns=(row.excess_ns - spread_ns, row.excess_ns + spread_ns),
        sets_ns=sets_ns,
        sets_interval_ns=(0.9 * sets_ns, 1.1 * sets_ns),
    )


RICH_ACCOUNT = tuple(attributed(row) for row in VOICE_ACCOUNT)
RICH_P99_NS = sum(row.sets_ns or 0 for row in RICH_ACCOUNT)


def recovery(level: float, before_ns: float, saved_ms: float, low_ms: float, high_ms: float) -> Recovery:
    return Recovery(
        level=level,
        before_ns=before_ns,
        after_ns=before_ns - saved_ms * MS,
        saved_ns=saved_ms * MS,
        interval_ns=(low_ms * MS, high_ms * MS),
    )


def replayed(*changes: str, saved: tuple[tuple[float, float, float], ...], serial: int = 0) -> WhatIf:
    """What changes save at p50, p95 and p99, each with the ends of its interval, in ms."""
    before = ((50.0, 612 * MS), (95.0, 1_010 * MS), (99.0, RICH_P99_NS))
    return WhatIf(
        changes=changes,
        replayed=4_096,
        of=12_400,
        serial=serial,
        recovers=tuple(recovery(level, before_ns, *ms) for (level, before_ns), ms in zip(before, saved, strict=True)),
        notes=("of 12 interactions only the account is known: there, a saving is an upper bound",),
    )


def finding(term: str, what_if: WhatIf, fix: str, *evidence: str, owner: str | None = None) -> Finding:
    own = [row for row in RICH_ACCOUNT if row.term == term]
    return Finding(
        term=term,
        entry=max(own, key=lambda row: row.tail_ns).entry,
        typical_ns=sum(row.typical_ns for row in own),
        tail_ns=sum(row.tail_ns for row in own),
        fix=fix,
        evidence=evidence,
        what_if=what_if,
        owner=owner,
    )


FINDINGS = (
    finding(
        "queueing",
        replayed("queueing=0", saved=((10, 8, 12), (210, 188, 240), (480, 410, 560)), serial=12),
        "add capacity, shed early, shorten the longest jobs",
        "waits before service: 12.0 ms typically, 486 ms for the slowest; 41.2 % wait over 1 ms",
        "queue on arrival: 9.3 before the slowest, 0.8 typically",
        owner="platform",
    ),
    finding(
        "geography",
        replayed("client/uplink.connect=0", "client/uplink.tls=0", saved=((0, 0, 0), (81, 60, 94), (93, 78, 110))),
        "keep connections warm: reuse them, resume TLS, prefetch names",
        "setting up connections (dns, connect, tls) takes 95.7 ms of the slowest; 62 % of them open one, 8 % of all",
        owner="network",
    ),
    finding(
        "variability",
        replayed("variability=p50", saved=((1, 0, 3), (22, 4, 38), (40, -6, 91))),
        "find the lossy hop; pin or change the path",
        owner="network",
    ),
    finding(
        "cold start",
        replayed("start=warm", saved=((0, 0, 0), (2, 0, 4), (4, 0, 9))),
        "keep warm, restore from a snapshot",
        "0.6 % of all meet one, of 2.30 s in the median; 54 % of the slowest",
    ),
)

RICH = replace(
    VOICE,
    moment="support-call",
    n=12_400,
    started=12_480,
    effective_n=9_100.0,
    outcomes={"ok": 12_394, "aborted": 4, "timeout": 2},
    total=(
        replace(known(50, 612 * MS, 604 * MS, 621 * MS), coverage_ns=(608 * MS, 618 * MS)),
        replace(known(95, 1_010 * MS, 962 * MS, 1_090 * MS), coverage_ns=(984 * MS, 1_210 * MS)),
        replace(known(99, RICH_P99_NS, 1_240 * MS, 1_510 * MS), coverage_ns=(1_180 * MS, None)),
    ),
    served=(
        known(50, 611 * MS, 603 * MS, 620 * MS),
        known(95, 1_002 * MS, 956 * MS, 1_081 * MS),
        known(99, 1_360 * MS, 1_220 * MS, 1_490 * MS),
    ),
    on_time=OnTime(share=0.9202, interval=(0.9153, 0.9249), over=990),
    verdict=Verdict(state="FAIL", why="990 of 12400 over the limit; the true share is 7.6 % to 8.4 %, 1 % is allowed"),
    typical_label="mean of 1240 around the median",
    tail_label="mean of the slowest 1 % (124)",
    account=RICH_ACCOUNT,
    sets=Sets(level=99.0, total_ns=RICH_P99_NS, n=56, scale=1.003),
    findings=FINDINGS,
    fine=(
        Fine(term="routing", typical_ns=1_720 * US, tail_ns=3_460 * US),
        Fine(term="broker", typical_ns=0, tail_ns=0),
    ),
    together=Together(
        pair=("queueing", "geography"),
        pair_recovers=recovery(99.0, RICH_P99_NS, 530, 470, 601),
        all_recovers=recovery(99.0, RICH_P99_NS, 560, 500, 640),
        # 440 + 70 + 40 + 10 = 560
        shares_ns={"queueing": 440.0 * MS, "geography": 70.0 * MS, "variability": 40.0 * MS, "cold start": 10.0 * MS},
    ),
    what_ifs=(
        replayed("llm/infer*=version:2026-07-3", saved=((12, 9, 15), (18, 11, 24), (9, -14, 31))),
        replayed("uplink=rtt:20ms", "llm/queue.wait=x0.5", saved=((18, 17, 19), (160, 130, 190), (300, 240, 350))),
    ),
    drivers=(
        Driver(
            name="queue depth",
            n=12_400,
            rank_correlation=0.91,
            correlation_interval=(0.88, 0.93),
            level=99.0,
            effect_ns=620.0 * MS,
            effect_interval_ns=(510.0 * MS, 740.0 * MS),
            counted=True,
            explains=True,
        ),
        Driver(
            name="rtt_spread_ns",
            n=9_800,
            rank_correlation=0.22,
            correlation_interval=(0.15, 0.29),
            level=99.0,
            effect_ns=31.0 * MS,
            effect_interval_ns=(-4.0 * MS, 66.0 * MS),
            counted=False,
            explains=False,
        ),
        Driver(
            name="input_tokens",
            n=12_400,
            rank_correlation=0.05,
            correlation_interval=(0.01, 0.09),
            level=None,
            effect_ns=None,
            effect_interval_ns=None,
            counted=False,
            explains=False,
        ),
    ),
    slices=(
        Slice(
            dimension="site",
            value="fra",
            n=2_232,
            share=0.18,
            tail_share=0.61,
            lift=3.39,
            p_value=1e-9,
            level=99.0,
            effect_ns=210.0 * MS,
            effect_interval_ns=(150.0 * MS, 280.0 * MS),
            compared=0.96,
        ),
        Slice(
            dimension="hardware",
            value="l4",
            n=80,
            share=0.0065,
            tail_share=0.04,
            lift=6.2,
            p_value=0.004,
            why="of their shapes the others have only 31 %",
        ),
    ),
    shifts=(
        Shift(
            dimension="version",
            old="1.4",
            new="1.5",
            n_old=6_100,
            n_new=6_300,
            level=99.0,
            old_ns=1_120.0 * MS,
            new_ns=1_240.0 * MS,
            # 20 + 100 = 1,240 - 1,120
            version_ns=20.0 * MS,
            version_interval_ns=(-10.0 * MS, 50.0 * MS),
            shape_ns=100.0 * MS,
            shape_interval_ns=(80.0 * MS, 121.0 * MS),
            compared=0.94,
        ),
    ),
    blame=(
        Blame(owner="platform", over_ns=38_000 * MS, share=0.76, entries={"llm/queue.wait": 36_000 * MS}),
        Blame(
            owner="network",
            over_ns=9_000 * MS,
            share=0.18,
            entries={"client/uplink.excess": 6_000 * MS, "client/uplink.tls": 3_000 * MS},
        ),
        Blame(owner=None, over_ns=3_000 * MS, share=0.06, entries={"tts/infer": 3_000 * MS}),
    ),
    burn=(
        Burn(owner=None, rates={"5m": None, "1h": 15.2, "6h": 7.31, "3d": 1.4}, alert="page"),
        Burn(owner="platform", rates={"5m": None, "1h": 12.6, "6h": 6.02, "3d": 1.1}, alert="ticket"),
        Burn(owner="network", rates={"5m": None, "1h": 0.4, "6h": 0.31, "3d": 0.2}, alert=None),
    ),
    duty=Duty(
        period_ns=28_800_000 * MS,
        periods=42,
        over=3,
        worst_ns=2_625.0 * MS,
        misses="at 15 a second, a p99 miss comes every 6.67 s",
    ),
)

ALERT_SHARES = (
    Share(entry="camera/*", limit_ns=40 * MS, owner="device"),
    Share(entry="vision/*", limit_ns=60 * MS, owner="vision"),
)
ALERT_ACCOUNT = rows(
    ("camera/capture", 16_700 * US, 33_300 * US, ALERT_SHARES[0]),
    ("camera/encode", 3_100 * US, 4_400 * US, ALERT_SHARES[0]),
    ("vision/queue.batch", 4_000 * US, 9_800 * US, ALERT_SHARES[1]),
    ("vision/infer", 21_400 * US, 23_000 * US, ALERT_SHARES[1]),
    ("vision/postprocess", 2_200 * US, 2_300 * US, ALERT_SHARES[1]),
    ("brake/actuate", 18_000 * US, 18_900 * US, None),
)
ALERT = MomentReport(
    moment="safety-alert",
    n=48_210,
    started=48_210,
    outcomes={"ok": 48_210},
    validity="valid",
    validity_why=None,
    total=(
        known(50, 65_300 * US, 65_100 * US, 65_500 * US),
        known(95, 79_800 * US, 79_300 * US, 80_400 * US),
        known(99, 88_600 * US, 87_500 * US, 89_900 * US),
    ),
    served=(),
    budget=Budget(limit_ns=150 * MS, percentile=99, shares=ALERT_SHARES, duty_period_ns=28_800_000 * MS),
    on_time=OnTime(share=0.99996, interval=(0.99985, 0.99999), over=2),
    verdict=Verdict(
        state="PASS", why="2 of 48210 over the limit; the true share is 0.000503 % to 0.015 %, 1 % is allowed"
    ),
    typical_ns=sum(row.typical_ns for row in ALERT_ACCOUNT),
    typical_label="mean of 4821 around the median",
    tail_ns=sum(row.tail_ns for row in ALERT_ACCOUNT),
    tail_label="mean of the slowest 1 % (482)",
    account=ALERT_ACCOUNT,
    typical_gap=ModelGap(total_ns=65_400 * US, low_ns=23_600 * US, high_ns=23_600 * US),
    tail_gap=ModelGap(total_ns=91_700 * US, low_ns=25_300 * US, high_ns=25_300 * US),
    bins=tuple(
        Bin(low_ns=(50 + 4 * place) * MS, high_ns=(54 + 4 * place) * MS, count=count)
        for place, count in enumerate((310, 4_420, 12_015, 14_870, 9_310, 4_120, 1_900, 801, 322, 98, 31, 9, 2, 2))
    ),
    cohorts=(),
    slowest=(
        slow(
            "frame-118204",
            path(
                ("camera/capture", 33_300 * US),
                ("camera/encode", 5_200 * US),
                ("vision/queue.batch", 71_000 * US),
                ("vision/infer", 23_400 * US),
                ("brake/actuate", 19_000 * US),
            ),
        ),
    ),
    health=(),
)

DOCUMENT_ACCOUNT = rows(
    ("llm/uplink..downlink", 4_200 * MS, 9_600 * MS, None),
    ("retrieval/uplink..downlink", 310 * MS, 640 * MS, None),
    ("worker/queue.broker", 95 * MS, 2_350 * MS, None),
    ("worker/preprocess", 820 * MS, 1_240 * MS, None),
    ("app/unattributed", 44 * MS, 47 * MS, None),
)
DOCUMENT = MomentReport(
    moment="document-analysis",
    n=74,
    started=75,
    outcomes={"ok": 74},
    validity="small",
    validity_why="p99 needs 299 interactions, there are 74",
    total=(
        known(50, 5_300 * MS, 4_900 * MS, 5_900 * MS),
        known(95, 11_400 * MS, 9_100 * MS, None),
        refused(99, 299, 74),
    ),
    served=(),
    budget=Budget(limit_ns=12_000 * MS, percentile=95),
    on_time=OnTime(share=0.9595, interval=(0.887, 0.986), over=3),
    verdict=Verdict(
        state="UNDECIDED", why="3 of 74 over the limit; the true share is 0.844 % to 11.4 %, 5 % is allowed", more=212
    ),
    typical_ns=sum(row.typical_ns for row in DOCUMENT_ACCOUNT),
    typical_label="mean of 8 around the median",
    tail_ns=sum(row.tail_ns for row in DOCUMENT_ACCOUNT),
    tail_label="mean of the slowest 5 % (4)",
    account=DOCUMENT_ACCOUNT,
    typical_gap=ModelGap(total_ns=5_469 * MS, low_ns=820 * MS, high_ns=5_330 * MS),
    tail_gap=ModelGap(total_ns=13_877 * MS, low_ns=1_240 * MS, high_ns=11_480 * MS),
    bins=bins(640 * MS, 1.33, (1, 0, 2, 4, 9, 14, 18, 12, 7, 3, 2, 0, 1, 1)),
    cohorts=(),
    sets=Sets(level=95.0, total_ns=None, why="what sets p95 needs 5,000 interactions, there are 74"),
    slowest=(
        slow(
            "doc|7 `quoted` <b>",
            path(
                ("worker/queue.broker", 8_100 * MS),
                ("worker/preprocess", 1_300 * MS),
                ("llm/uplink..downlink", 14_900 * MS),
            ),
        ),
    ),
    health=(Health(kind="unsplit-call", count=148, example="llm POST /v1/messages: only the caller's span"),),
)

FAILING_ACCOUNT = rows(
    ("llm/queue.wait", 40 * MS, 2_100 * MS, None),
    ("llm/infer", 350 * MS, 380 * MS, None),
    ("client/uplink", 45 * MS, 44 * MS, None),
)
FAILING = MomentReport(
    moment="chat-reply",
    n=640,
    started=640,
    outcomes={"ok": 590, "error": 31, "refused": 19},
    validity="valid",
    validity_why=None,
    total=(
        known(50, 460 * MS, 441 * MS, 477 * MS),
        known(95, inf, inf, inf),
        known(99, inf, inf, inf),
    ),
    served=(
        known(50, 430 * MS, 421 * MS, 440 * MS),
        known(95, 1_900 * MS, 1_620 * MS, 2_210 * MS),
        known(99, 2_700 * MS, 2_380 * MS, 3_400 * MS),
    ),
    budget=Budget(limit_ns=2_000 * MS, percentile=99),
    on_time=OnTime(share=0.886, interval=(0.859, 0.908), over=73),
    verdict=Verdict(state="FAIL", why="73 of 640 over the limit; the true share is 9.05 % to 14.1 %, 1 % is allowed"),
    typical_ns=435 * MS,
    typical_label="mean of 64 around the median",
    tail_ns=2_524 * MS,
    tail_label="mean of the slowest 1 % (6)",
    failing=Failing(
        share=0.031,
        outcomes={"error": 11, "timeout": 9},
        from_level=99.0,
        parts=(FailingPart(dimension="site", value="fra", n=160, failed_share=0.1, of_failures=0.8),),
    ),
    account=FAILING_ACCOUNT,
    typical_gap=ModelGap(total_ns=435 * MS, low_ns=350 * MS, high_ns=350 * MS),
    tail_gap=ModelGap(total_ns=2_524 * MS, low_ns=380 * MS, high_ns=380 * MS),
    bins=bins(60 * MS, 1.4, (3, 8, 22, 90, 210, 140, 41, 26, 21, 17, 9, 3)),
    cohorts=tuple(
        CohortRow(
            key={"tenant": f"tenant-{number:03d}", "site": ("lon", "fra", None)[number % 3]},
            n=5 + number % 7,
            p50=known(50, (380 + 3 * number) * MS, (300 + 3 * number) * MS, None),
            p99=refused(99, 299, 5 + number % 7),
            on_time=None,
            leading="llm/infer" if number % 2 else "llm/queue.wait",
        )
        for number in range(120)
    ),
    slowest=(),
    health=(),
)

UNBUDGETED_ACCOUNT = rows(
    ("engine/infer.prefill", 57_810 * US, 57_810 * US, None),
    ("engine/infer.decode", 138_300 * US, 138_300 * US, None),
    ("engine/unattributed.tokenize->dispatch", 58_750 * US, 58_750 * US, None),
    ("engine/queue.wait", 50 * US, 50 * US, None),
)
UNBUDGETED = MomentReport(
    moment="llm_request",
    n=1,
    started=1,
    outcomes={"ok": 1},
    validity="small",
    validity_why="p99 needs 299 interactions, there are 1",
    total=(refused(50, 6, 1), refused(95, 72, 1), refused(99, 299, 1)),
    served=(),
    budget=None,
    on_time=None,
    verdict=None,
    typical_ns=254_910 * US,
    typical_label="the median interaction",
    tail_ns=254_910 * US,
    tail_label="the slowest interaction",
    account=UNBUDGETED_ACCOUNT,
    typical_gap=ModelGap(total_ns=254_910 * US, low_ns=196_110 * US, high_ns=196_110 * US),
    tail_gap=ModelGap(total_ns=254_910 * US, low_ns=196_110 * US, high_ns=196_110 * US),
    bins=(Bin(low_ns=254 * MS, high_ns=256 * MS, count=1),),
    cohorts=(),
    slowest=(
        slow(
            "req-1",
            path(
                ("engine/unattributed.tokenize->dispatch", 58_750 * US),
                ("engine/queue.wait", 50 * US),
                ("engine/infer.prefill", 57_810 * US),
                ("engine/infer.decode", 138_300 * US),
            ),
        ),
    ),
    health=(),
)

EMPTY = MomentReport(
    moment="nightly-digest",
    n=0,
    started=12,
    outcomes={},
    validity="small",
    validity_why="p99 needs 299 interactions, there are 0",
    total=(refused(50, 6, 0), refused(95, 72, 0), refused(99, 299, 0)),
    served=(),
    budget=Budget(limit_ns=60_000 * MS, percentile=95),
    on_time=None,
    verdict=Verdict(state="UNDECIDED", why="nothing was measured", more=None),
    typical_ns=None,
    typical_label="",
    tail_ns=None,
    tail_label="",
    account=(),
    typical_gap=None,
    tail_gap=None,
    bins=(),
    cohorts=(),
    slowest=(),
    health=(Health(kind="incomplete", count=12, example="digest-1: no end"),),
)

LATE = "1 % of the requests were sent 58.8 s or more after their intended start; at most 580 ms is allowed"


def reason(rule: str, state: State | None, text: str, measured: float | None = None) -> Reason:
    return Reason(rule=rule, state=state, measured=measured, limit=580.0 * MS, text=text)


def judged(state: State, *reasons: Reason, late_ms: tuple[int, int, int]) -> GeneratorVerdict:
    p50, p99, most = (value * MS for value in late_ms)
    return GeneratorVerdict(
        state=state, reasons=reasons, lateness_p50_ns=p50, lateness_p99_ns=p99, lateness_max_ns=most, achieved=0.502
    )


LOADS = (
    Load(
        name="demos/vllm+v0_engine/results/stage_4_lifecycle_metrics.json",
        tool="inference-perf",
        moment=None,
        requests=9_464,
        verdict=judged(
            INVALID,
            reason("lateness", INVALID, LATE, 58_821.0 * MS),
            reason("trend", None, "whether lateness grew: not measured"),
            reason("unsent", None, "how many requests were never sent: not measured"),
            late_ms=(27_489, 58_821, 59_647),
        ),
        requested_rate=157.74,
        achieved_rate=79.17,
        bounds=(
            Bound(level=50.0, low_ns=28_967 * MS, high_ns=35_921 * MS),
            Bound(level=99.0, low_ns=60_298 * MS, high_ns=None),
        ),
        claimed_ns={"p50": 5_489 * MS, "p99": 6_484 * MS, "ttft p50": 3_947 * MS},
    ),
    Load(
        name="whole run",
        tool="outlay",
        moment="refund-agent",
        requests=1_240,
        verdict=replace(
            judged(DEGRADED, reason("stall", DEGRADED, "a sender's loop stood still for 31.0 ms"), late_ms=(0, 2, 31)),
            unsent=0,
            slope=Slope(value=0.001, low=0.0, high=0.002),
        ),
        requested_rate=20.0,
        achieved_rate=19.9,
        clock="client",
        begin_ns=1_772_366_400_000 * MS,
        sender_stalls=(Stall(from_ns=1_772_366_409_000 * MS, to_ns=1_772_366_409_031 * MS, due=1),),
        silences=tuple(
            Stall(from_ns=(1_772_366_400_000 + at) * MS, to_ns=(1_772_366_401_000 + at) * MS, due=40)
            for at in (9_000, 19_000, 29_000, 39_000)
        ),
        dimensions={"site": "lon"},
    ),
    Load(
        name="claims only",
        tool="vllm bench serve",
        moment=None,
        requests=200,
        verdict=judged(VALID, late_ms=(0, 0, 0)),
        claimed_ns={"ttft p50": 95 * MS},
    ),
)

INVALID_LOAD = MomentReport(
    moment="refund-agent",
    n=1_240,
    started=1_240,
    outcomes={"ok": 1_236, "error": 4},
    validity="invalid",
    validity_why=f"its load was INVALID: {LATE}",
    total=tuple(
        Percentile(level=level, value_ns=None, why="its load was INVALID; it is 29.0 s to 35.9 s")
        for level in (50.0, 95.0, 99.0)
    ),
    served=(),
    budget=Budget(limit_ns=5_000 * MS, percentile=99),
    on_time=None,
    verdict=Verdict(state="UNDECIDED", why="its load was INVALID"),
    typical_ns=None,
    typical_label="no interactions under a load that counts",
    tail_ns=None,
    tail_label="no interactions under a load that counts",
    account=(),
    typical_gap=None,
    tail_gap=None,
    bins=(),
    cohorts=(),
    slowest=(),
    health=(),
    bounds=tuple(Bound(level=level, low_ns=28_967 * MS, high_ns=35_921 * MS) for level in (50.0, 95.0, 99.0)),
)

SAMPLE = Report(
    sources=(
        Source(name="traces/july.jsonl", format="otlp-json", records=592_320, unit="spans"),
        Source(name="vllm/requests.json", format="vllm-requests", records=818, unit="interactions"),
    ),
    moments=(VOICE, RICH, ALERT, DOCUMENT, FAILING, UNBUDGETED, EMPTY, INVALID_LOAD),
    by=("site", "version"),
    filters={"hardware": "l4"},
    loads=LOADS,
)
