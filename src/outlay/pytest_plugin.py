"""A latency budget as a test: `@pytest.mark.latency_budget("voice-turn")`, and the fixture `latency` to record with.

pytest loads this module in every run of an environment that has Outlay, so it imports nothing of it before a test asks.
"""

from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:  # what these import would slow every run of pytest
    from outlay.assembly import Assembler
    from outlay.budget import Moment
    from outlay.explain import Gathering
    from outlay.explain.gate import Checked
    from outlay.formats.codec import Item
    from outlay.formats.spec import Spec
    from outlay.interaction import Interaction, Note, Outcome
    from outlay.load import Load

MARKER = "latency_budget"
_HELP = (
    f"{MARKER}(moment, *, budget=None, data=None): what the test records with the fixture `latency`, and what the file "
    "or folder `data` holds after it, must keep to the budget of the moment; `budget` is an outlay.yaml or a preset"
)
_WARN, _FAIL = "warn", "fail"


class LatencyUndecided(pytest.PytestWarning):
    """Too few interactions for a verdict on a budget."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("outlay").addoption(
        "--latency-undecided",
        choices=(_WARN, _FAIL),
        default=_WARN,
        help=f"What a test marked {MARKER} comes to whose interactions are too few for a verdict.",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", _HELP)


class Latency:
    """What a test measured. Paths are relative to pytest's rootdir."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._recorded: list[_Recorded] = []
        self._logs: list[Path] = []

    def record(
        self,
        total_ns: int,
        entries: Mapping[str, int] | None = None,
        outcome: "Outcome" = "ok",
        *,
        start_ns: int | None = None,
    ) -> None:
        """One interaction of the marker's moment, from the person's event to what the person perceived.

        `entries` are `component/stage` with their nanoseconds, in the order of time; what they leave of `total_ns` is
        unattributed. `outcome` is "ok", "error", "timeout", "refused", "aborted" or "unsent". Without `start_ns` it
        ended just now; with it, on a clock of your own, bursts of slow ones are seen for what they are.
        Raises ValueError for negative times, entries that take longer than the whole, unknown stages and outcomes.
        """
        from outlay.interaction import OUTCOMES
        from outlay.stages import split_entry

        given = dict(entries or {})
        if min([total_ns, *given.values()]) < 0 or sum(given.values()) > total_ns:
            raise ValueError(f"entries of {sum(given.values())} ns do not fit into a total of {total_ns} ns")
        if outcome not in OUTCOMES:
            raise ValueError(f"{outcome!r} is no outcome; there are {', '.join(OUTCOMES)}")
        for name in given:
            split_entry(name)
        begun_ns = perf_counter_ns() - total_ns if start_ns is None else start_ns
        self._recorded.append(_Recorded(start_ns=begun_ns, total_ns=total_ns, entries=given, outcome=outcome))

    def from_log(self, path: str | Path) -> None:
        """All interactions that a file or a folder holds when the test ends, in any format that Outlay reads."""
        self._logs.append(self._root / path)

    def gathered(self, spec: "Spec", moment: "Moment") -> "Gathering":
        """Everything measured of this moment. Raises OSError and FormatError for a log that cannot be read."""
        from outlay.budget import Moment as Named
        from outlay.explain import Gathering, Question

        gathering = Gathering(Question(moments=spec.moments, only=moment.name, slowest=0))
        for log in self._logs:
            _read_into(gathering, log, spec)
        gathering.flush()
        # What was recorded is the whole of its interaction: no marks say where it begins and ends.
        whole = Named(name=moment.name, budget=moment.budget)
        recorded = Gathering(Question(moments=(whole,), only=moment.name, slowest=0))
        for place, each in enumerate(self._recorded):
            recorded.take(each.interaction(f"recorded-{place}", moment.name))
        recorded.flush()
        gathering.merge(recorded)
        return gathering


@dataclass(frozen=True, slots=True, kw_only=True)
class _Recorded:
    """What a test said of one interaction."""

    start_ns: int
    total_ns: int
    entries: Mapping[str, int]
    outcome: "Outcome"

    def interaction(self, key: str, moment: str) -> "Interaction":
        from outlay.interaction import Interaction, Span
        from outlay.stages import split_entry

        spans, at_ns = [], self.start_ns
        for name, duration_ns in self.entries.items():
            component, stage = split_entry(name)
            spans.append(
                Span(
                    id=name,
                    parent=None,
                    name=name,
                    component=component,
                    stage=stage,
                    start_ns=at_ns,
                    end_ns=at_ns + duration_ns,
                )
            )
            at_ns += duration_ns
        return Interaction(
            id=key,
            moment=moment,
            start_ns=self.start_ns,
            end_ns=self.start_ns + self.total_ns,
            outcome=self.outcome,
            spans=tuple(spans),
        )


def _read_into(gathering: "Gathering", log: Path, spec: "Spec") -> None:
    """All that a file, or the files of a folder, hold. A file of no known format inside a folder is passed over."""
    from outlay.assembly import Assembler, wanted_keys
    from outlay.formats.codec import FormatError
    from outlay.formats.reading import read
    from outlay.mapping import Rules

    rules = Rules(spec.rules)
    assembler = Assembler(rules, spec.moments)
    wanted = wanted_keys(rules, spec.moments)
    for file in sorted(path for path in log.rglob("*") if path.is_file()) if log.is_dir() else [log]:
        with file.open("rb") as stream:
            try:
                for item in read(stream, wanted).items:
                    for complete in _complete(item, assembler, spec):
                        gathering.take(complete)
            except FormatError:
                if file == log:
                    raise
    for complete in assembler.finish():
        gathering.take(complete)


def _complete(item: "Item", assembler: "Assembler", spec: "Spec") -> "Iterable[Interaction | Load | Note]":
    """What an item of an input is, or completes."""
    from outlay.explain.gather import retarget
    from outlay.interaction import Interaction, Note
    from outlay.load import Load
    from outlay.trace import TraceSpan

    match item:
        case TraceSpan():
            return assembler.add(item)
        case Interaction():
            return (retarget(item, spec.moments),)
        case Load():
            return (retarget(item, spec.moments),)
        case Note():
            return (item,)


# Around each test


_LATENCY = pytest.StashKey[Latency]()


@pytest.fixture
def latency(request: pytest.FixtureRequest) -> Latency:
    """Takes what the test measures; its marker latency_budget says against which budget."""
    if request.node.get_closest_marker(MARKER) is None:
        pytest.fail(f"the fixture latency records for a budget: mark the test with @pytest.mark.{MARKER}(moment)")
    made = request.node.stash[_LATENCY] = Latency(request.config.rootpath)
    return made


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    result = yield
    marker = item.get_closest_marker(MARKER)
    if marker is not None:
        _judge(item, marker)
    return result


def _judge(item: pytest.Item, marker: pytest.Mark) -> None:
    from outlay.quantiles import PASS, UNDECIDED
    from outlay.render.gate import reason
    from outlay.render.untrusted import visible
    from outlay.render.words import plain

    checked = _checked(item, *_arguments(marker))
    if checked.state == PASS:
        return
    text = visible(f"latency budget of {checked.moment}: {checked.state}: {plain(reason(checked))}")
    if checked.state == UNDECIDED and item.config.getoption("--latency-undecided") == _WARN:
        item.warn(LatencyUndecided(text))
    else:
        pytest.fail(text, pytrace=False)


def _arguments(marker: pytest.Mark) -> tuple[str, str | None, str | None]:
    """Moment, budget and data of a marker."""
    given = dict(marker.kwargs)
    budget, data = given.pop("budget", None), given.pop("data", None)
    if len(marker.args) != 1 or given:
        pytest.fail(f"the marker reads {_HELP.partition(':')[0]}", pytrace=False)
    return str(marker.args[0]), budget and str(budget), data and str(data)


def _checked(item: pytest.Item, name: str, budget: str | None, data: str | None) -> "Checked":
    from outlay.explain import build_report
    from outlay.explain.gate import check
    from outlay.formats.codec import FormatError

    root = item.config.rootpath
    spec, moment = _budget(root, name, budget)
    measured = item.stash.get(_LATENCY, Latency(root))
    if data is not None:
        measured.from_log(data)
    try:
        gathering = measured.gathered(spec, moment)
    except OSError as error:
        pytest.fail(f"{error.filename}: {error.strerror}", pytrace=False)
    except FormatError as error:
        pytest.fail(f"the data of {name} was refused: {error}", pytrace=False)
    gate = check(gathering, build_report(gathering, ()))
    return gate.moments[0]


def _budget(root: Path, name: str, budget: str | None) -> "tuple[Spec, Moment]":
    """The spec to read data by, and the moment with its budget: the marker's, that of outlay.yaml, or the preset."""
    from outlay.formats.spec import load_preset, load_spec, preset_names

    file = root / (budget or "outlay.yaml")
    preset = budget or name
    if file.is_file():
        try:
            spec = load_spec(file.read_bytes(), str(file))
        except ValueError as error:
            pytest.fail(str(error), pytrace=False)
    elif preset in preset_names():
        spec = load_preset(preset)
    else:
        pytest.fail(f"{file}: there is no such file, and no preset {preset}", pytrace=False)
    for moment in spec.moments:
        if moment.name == name and moment.budget is not None:
            return spec, moment
    pytest.fail(f"{file}: no budget for the moment {name}", pytrace=False)
