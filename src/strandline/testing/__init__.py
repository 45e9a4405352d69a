"""What tests of Strandline, its stores and its engines run against: real parts, on a string."""

from strandline.testing.clock import CountingIds, SimulatedClock
from strandline.testing.disk import Faults, FaultyDisk, FaultyFile, PowerCut
from strandline.testing.engine_contract import ContextEngineContract
from strandline.testing.engine_host import ScriptedLlm, engine_runtime
from strandline.testing.model_server import Script, ScriptedModelServer
from strandline.testing.overflow_words import OverflowStyle
from strandline.testing.platter import Tail
from strandline.testing.reply import Reply, ToolCall
from strandline.testing.wire import RecordedRequest

__all__ = [
    "ContextEngineContract",
    "CountingIds",
    "Faults",
    "FaultyDisk",
    "FaultyFile",
    "OverflowStyle",
    "PowerCut",
    "RecordedRequest",
    "Reply",
    "Script",
    "ScriptedLlm",
    "ScriptedModelServer",
    "SimulatedClock",
    "Tail",
    "ToolCall",
    "engine_runtime",
]
