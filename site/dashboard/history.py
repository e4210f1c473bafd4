"""The history that the site shows: all that the records say."""

from __future__ import annotations

from collector.history.load import load_history as load_history
from collector.history.load import make_history as make_history
