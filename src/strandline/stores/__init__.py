"""Stores: where transcripts and rows are kept. An edge: chosen in `wiring` only."""
