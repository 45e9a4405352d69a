"""The one place that picks implementations: stores, models, tools, for a state directory."""

from strandline.wiring.state import State, ignore, open_state, rows_in

__all__ = ["State", "ignore", "open_state", "rows_in"]
