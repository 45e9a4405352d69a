"""Settings: typed configuration from ``strandline.json`` or an ``openclaw.json`` (spec 2, 3)."""
