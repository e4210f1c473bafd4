"""The words of the dashboard: frozen values that history makes and pages read."""

from __future__ import annotations

from collector.history.model import Acknowledgement as Acknowledgement
from collector.history.model import Ceilings as Ceilings
from collector.history.model import Commit as Commit
from collector.history.model import History as History
from collector.history.model import Point as Point
from collector.history.model import RunInfo as RunInfo
from collector.history.model import SentinelPoint as SentinelPoint
from collector.history.model import SeriesKey as SeriesKey
from collector.history.model import Sizes as Sizes
from collector.reading import Problem as Problem
