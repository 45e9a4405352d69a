"""Sessions: addresses of conversations and their rows (spec 2)."""
