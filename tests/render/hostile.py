"""Reports whose names try to break out of what shows them."""

from dataclasses import replace

from hypothesis import strategies as st
from sample import LOADS, RICH

from outlay.report import Blame, CohortRow, Health, MomentReport, Report, Row, Slow, Source
from outlay.stages import term_of

ATTACKS = (
    "\x1b[31mred\x1b[0m",
    "\x9b31m",
    "\x1b]0;title\x07",
    "bell\x07 back\x08space \r return \n newline \t tab",
    "\u202eevil\u202c",
    "\u2066isolate\u2069",
    "zero\u200bwidth\u200d\ufeff",
    "line\u2028paragraph\u2029",
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='x",
    "</style></title><b>",
    "{{ 7 * 7 }}{% raw %}",
    "a|b\\|c",
    "`code` ``double`` \\`",
    "[link](https://example.invalid) ![](x) <https://example.invalid>",
    "www.example.invalid",
    "@everyone #1",
    "**bold** _it_ ~~gone~~",
    "[bold red]markup[/]",
    "&amp; &#60;b&#62;",
    "---",
    "wide \u6f22\u5b57 \U0001f600",
    "\u0301\u0301\u0301 combining",
    " spaces ",
    "",
    "n" * 300,
)

names = st.one_of(st.sampled_from(ATTACKS), st.text(max_size=60))


def caused(name: str, entry: str) -> MomentReport:
    """A moment whose findings, groups and owners are called `name`, the entries of them `entry`."""
    # A "=" or the name of a term would be another change.
    inside = f"~{name}".replace("=", "-").strip()
    changes = (f"{inside}=0", f"{inside}/infer=p50", f"llm/infer=site:{inside}")
    what_if = replace(RICH.what_ifs[0], changes=changes, notes=(name,))
    return replace(
        RICH,
        findings=tuple(
            replace(finding, entry=entry, fix=name, evidence=(name,), owner=name, what_if=what_if)
            for finding in RICH.findings[:1]
        ),
        what_ifs=(what_if,),
        drivers=tuple(replace(driver, name=name) for driver in RICH.drivers[:1]),
        slices=tuple(replace(each, dimension=name, value=name, why=each.why and name) for each in RICH.slices),
        shifts=(replace(RICH.shifts[0], dimension=name, old=name, new=name),),
        blame=(Blame(owner=name, over_ns=10**9, share=1.0, entries={entry: 10**9}),),
        burn=(replace(RICH.burn[1], owner=name),),
    )


def report(name: str) -> Report:
    """A report that says `name` wherever the data can put a name of its own."""
    entry = f"{name}/unattributed.{name}->{name}"
    row = Row(
        entry=entry,
        term=term_of(entry),
        typical_ns=10**6,
        tail_ns=9 * 10**6,
        budget_ns=10**6,
        owner=name,
        excess_interval_ns=(7e6, 9e6),
        sets_ns=5 * 10**6,
    )
    other = replace(row, entry=f"{name}/hold", term="setting", tail_ns=8 * 10**6)
    cohort = RICH.cohorts[0]
    moment = replace(
        caused(name, entry),
        moment=name,
        account=(row, other),
        typical_ns=row.typical_ns + other.typical_ns,
        tail_ns=row.tail_ns + other.tail_ns,
        cohorts=(CohortRow(key={name: name}, n=5, p50=cohort.p50, p99=cohort.p99, on_time=None, leading=entry),),
        slowest=(
            Slow(
                id=name,
                total_ns=RICH.slowest[0].total_ns,
                outcome=name,
                dimensions={name: name},
                segments=tuple(replace(segment, entry=entry) for segment in RICH.slowest[0].segments),
            ),
        ),
        health=(Health(kind="incomplete", count=1, example=name),),
        validity="small",
        validity_why=name,
        tail_label=name,
    )
    source = Source(name=name, format="otlp", records=1, unit="spans")
    stalled = LOADS[1]
    reasons = tuple(replace(reason, text=name) for reason in stalled.verdict.reasons)
    judged = replace(stalled.verdict, reasons=reasons)
    load = replace(stalled, name=name, tool=name, moment=name, verdict=judged, claimed_ns={name: 10**9})
    return Report(sources=(source,), moments=(moment,), by=(name,), filters={name: name}, loads=(load,))
