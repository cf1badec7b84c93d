"""From interactions to a report: gather accounts into cohorts, then say what they mean."""

from outlay.explain.build import build_report
from outlay.explain.gather import Gathering, Question

__all__ = ["Gathering", "Question", "build_report"]
