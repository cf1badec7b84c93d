"""Interactions that never gave a result: which percentiles they take with them, and where they come from."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from outlay.accounts import OUTCOME_NAMES, Accounts
from outlay.report import Failing, FailingPart

LEVELS = (50.0, 95.0, 99.0)

# A part with fewer interactions than this tells nothing; nor does one of which hardly more fail than of all.
_FEWEST = 20
_LIFT = 1.5
_DOUBT = 0.01
_MOST = 3


def failing(accounts: Accounts) -> Failing | None:
    """How many failed and how, from which percentile on nobody gets a result, and whose failures stand out.

    None where nothing failed. Parts are values of dimensions of which at least half as many again fail as of all, more
    than chance explains (Fisher's exact test, corrected by their number; Bonferroni); at most three.
    """
    failed = ~accounts.served
    if not failed.any():
        return None
    weights, outcomes = accounts.weights, accounts.outcomes
    share = float(weights[failed].sum() / accounts.count)
    return Failing(
        share=share,
        outcomes={
            OUTCOME_NAMES[code]: round(float(weights[outcomes == code].sum())) for code in np.unique(outcomes[failed])
        },
        from_level=next((level for level in LEVELS if share > 1 - level / 100), None),
        parts=tuple(sorted(_parts(accounts, failed), key=lambda part: (-part.failed_share, part.value))[:_MOST]),
    )


def _parts(accounts: Accounts, failed: NDArray[np.bool_]) -> Iterator[FailingPart]:
    from scipy.special import bdtrc

    tested = sum(len(labels.values) for labels in accounts.dimensions.values())
    n, bad = len(failed), int(failed.sum())
    for dimension, labels in accounts.dimensions.items():
        if len(labels.values) < 2:
            continue
        all_of = np.bincount(labels.codes + 1, minlength=len(labels.values) + 1)[1:]
        bad_of = np.bincount(labels.codes[failed] + 1, minlength=len(labels.values) + 1)[1:]
        for value, count, own in zip(labels.values, all_of.tolist(), bad_of.tolist(), strict=True):
            # The binomial is close to the hypergeometric, and errs to the side of silence.
            unlikely = own > 0 and float(bdtrc(own - 1, count, bad / n)) * tested < _DOUBT
            if count >= _FEWEST and own / count > _LIFT * bad / n and unlikely:
                yield FailingPart(
                    dimension=dimension, value=value, n=count, failed_share=own / count, of_failures=own / bad
                )
