"""The small worlds beside these tests can be imported by them, however few of them run."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
