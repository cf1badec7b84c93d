"""Outlay's own router with something taken from it, to see what each signal buys."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from outlay.decaying import WEIGHTS
from outlay.forecast import Forecasts

# What a router does with a forecast before it decides.
Ablation = Callable[[Forecasts], Forecasts]

_MIDDLE = int(np.searchsorted(np.cumsum(WEIGHTS), 0.5))


def whole(forecasts: Forecasts) -> Forecasts:
    """Nothing is taken."""
    return forecasts


def no_queue(forecasts: Forecasts) -> Forecasts:
    """As if nothing waited anywhere."""
    service_ns = np.maximum(forecasts.service_ns - forecasts.wait_ns, 1.0)
    return replace(forecasts, service_ns=service_ns, wait_ns=np.zeros_like(forecasts.wait_ns))


def no_spread(forecasts: Forecasts) -> Forecasts:
    """As if every round trip took what the middle one takes."""
    middle = forecasts.network_ns[:, _MIDDLE : _MIDDLE + 1]
    return replace(forecasts, network_ns=np.repeat(middle, forecasts.network_ns.shape[1], axis=1))


def no_age(forecasts: Forecasts) -> Forecasts:
    """As if every signal was of now."""
    return replace(forecasts, spread=np.ones_like(forecasts.spread))


def capacity_only(forecasts: Forecasts) -> Forecasts:
    """How fast each server and path is, and nothing of what goes on."""
    return no_age(no_spread(no_queue(forecasts)))


ABLATIONS: Mapping[str, Ablation] = {
    "outlay": whole,
    "outlay-no-queue": no_queue,
    "outlay-no-spread": no_spread,
    "outlay-no-age": no_age,
    "outlay-capacity-only": capacity_only,
}
