"""What tests of Strandline, its stores and its engines run against: real parts, on a string."""

from strandline.testing.clock import CountingIds, SimulatedClock
from strandline.testing.disk import Faults, FaultyDisk, FaultyFile, PowerCut
from strandline.testing.model_server import Script, ScriptedModelServer
from strandline.testing.overflow_words import OverflowStyle
from strandline.testing.platter import Tail
from strandline.testing.reply import Reply, ToolCall
from strandline.testing.wire import RecordedRequest

__all__ = [
    "CountingIds",
    "Faults",
    "FaultyDisk",
    "FaultyFile",
    "OverflowStyle",
    "PowerCut",
    "RecordedRequest",
    "Reply",
    "Script",
    "ScriptedModelServer",
    "SimulatedClock",
    "Tail",
    "ToolCall",
]
