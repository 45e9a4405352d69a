"""What tests of Strandline, its stores and its engines run against: real parts, on a string."""

from strandline.testing.chat_wire import OverflowStyle, Reply, ToolCall
from strandline.testing.clock import CountingIds, SimulatedClock
from strandline.testing.disk import Faults, FaultyDisk, FaultyFile, PowerCut
from strandline.testing.model_server import RecordedRequest, Script, ScriptedModelServer
from strandline.testing.platter import Tail

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
