"""Runtime: a turn, its lane and the seam to models (spec 4)."""
