"""What `outlay gateway` serves, read from outlay.yaml, with a line for everything that is wrong."""

import pytest

from outlay.deployment import Client, Endpoint, Limits, MomentRules
from outlay.formats.spec import SpecError, load_spec
from outlay.policy import Rules, Rung
from outlay.units import NS_PER_MS, NS_PER_S

DIGEST = "ab" * 32
WHOLE = f"""
moments:
  voice:
    {{within: 800ms, render: 40ms, output: 64, ladder: {{rungs: [{{name: large, variants: [large]}}], p_min: 0.9}}}}
  document: {{within: 60s, useful: all}}
sites: {{lon: {{rtt: 4ms}}, par: {{}}}}
targets:
  large-lon:
    url: https://lon.example/base/
    site: lon
    variant: large
    model: org/large
    key: OUTLAY_KEY_LON
    speed: {{prefill: 8000, step: 20ms, overhead: 5ms}}
    cold: {{times: [10s], keep: 60s}}
  small: {{url: "http://[::1]:8000", site: par, quality: 0.7, price_per_hour: 3.6, speed: {{prefill: 900, step: 9ms}}}}
gateway:
  listen: 0.0.0.0:9000
  moment: voice
  within: 30s
  clients: {{app: {{key_sha256: {DIGEST}, moments: [voice], rate: 5, at_once: 2}}}}
  limits: {{silence: 2s, body: 5000}}
  tls: {{certificate: c.pem, key: k.pem}}
  access_log: "-"
"""


def test_a_whole_file() -> None:
    deployment = load_spec(WHOLE, "outlay.yaml").deployment
    assert deployment is not None
    assert deployment.endpoints == (
        Endpoint(
            target="large-lon", host="lon.example", port=443, tls=True, prefix="/base", model="org/large",
            key_variable="OUTLAY_KEY_LON",
        ),
        Endpoint(target="small", host="::1", port=8000),
    )  # fmt: skip
    large, small = deployment.fleet.targets
    assert (large.variant, large.service.overhead_ns, small.variant, small.quality) == (
        "large", 5 * NS_PER_MS, "small", 0.7,
    )  # fmt: skip
    assert small.price_per_s == pytest.approx(0.001)
    assert deployment.moments["voice"] == MomentRules(
        name="voice",
        limit_ns=800 * NS_PER_MS,
        rules=Rules(rungs=(Rung(name="large", variants=("large",)),), p_min=0.9, render_ns=40 * NS_PER_MS),
        output_tokens=64,
    )
    assert deployment.moments["document"].useful_tokens is None
    assert deployment.rtt_ns == {"lon": 4 * NS_PER_MS, "par": NS_PER_MS}
    assert deployment.clients == (
        Client(name="app", key_sha256=DIGEST, moments=("voice",), per_s=5.0, at_once=2),
    )  # fmt: skip
    assert deployment.limits == Limits(silence_ns=2 * NS_PER_S, body_bytes=5000)
    assert (deployment.host, deployment.port, deployment.fallback_ns) == ("0.0.0.0", 9000, 30 * NS_PER_S)
    assert (deployment.certificate, deployment.private_key, deployment.access_log) == ("c.pem", "k.pem", "-")


def test_a_file_without_targets_has_no_deployment() -> None:
    assert load_spec("moments: {a: {within: 1s}}", "outlay.yaml").deployment is None


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("site: par", "site: pra", "targets.small.site: unknown site pra; did you mean par?"),
        ("variants: [large]", "variants: [lage]",
         "moments.voice.ladder.rungs[0].variants[0]: unknown variant lage; did you mean large?"),
        ("moment: voice", "moment: vioce", "gateway.moment: unknown moment vioce; did you mean voice?"),
        ("moments: [voice]", "moments: [x]", "gateway.clients.app.moments[0]: unknown moment x"),
        ("https://lon.example/base/", "lon.example", "targets.large-lon.url: expected an address such as"),
        ("https://lon", "https://me:secret@lon", "targets.large-lon.url: a credential does not stand in a file"),
        ("0.0.0.0:9000", "9000", "gateway.listen: expected an address such as 127.0.0.1:8080"),
        ("OUTLAY_KEY_LON", "KEY", "targets.large-lon.key: expected a variable such as OUTLAY_KEY, got KEY"),
        (DIGEST, "ab", "gateway.clients.app.key_sha256: expected 64 hex digits"),
        ("p_min: 0.9", "p_min: 0.5", "moments.voice.ladder: p_floor must lie above 0 and at most at p_min"),
        ("useful: all", "useful: some", "moments.document.useful: expected a whole number of at least 1, or all"),
        ("variant: large", "variant: auto", "targets.large-lon: auto is what clients say"),
        ("step: 9ms", "step: 0ms", "targets.small.speed.step: must be above 0"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_its_line(old: str, new: str, problem: str) -> None:
    assert old in WHOLE
    with pytest.raises(SpecError) as error:
        load_spec(WHOLE.replace(old, new), "outlay.yaml")
    assert problem in str(error.value)
    assert str(error.value).startswith("outlay.yaml:")
    assert "secret" not in str(error.value).replace("a credential", "")


def test_a_gateway_needs_targets() -> None:
    with pytest.raises(SpecError, match="gateway: needs `targets` beside it"):
        load_spec("gateway: {within: 1s}", "outlay.yaml")
