"""The cool-downs of models in one small file.

``{"version": 1, "models": {"provider/model": {…}}}``. What the records mean is decided by
`strandline.runtime.cooldowns`.
"""

from __future__ import annotations

from collections.abc import Mapping

from strandline.stores.records_file import RecordsFile
from strandline.transcript.messages import JsonObject


class CooldownsFile(RecordsFile[Mapping[str, JsonObject]]):
    """Satisfies `strandline.runtime.cooldowns.CooldownRecords`."""

    member = "models"
    shape = dict
    what = "which models are left alone after failures"
