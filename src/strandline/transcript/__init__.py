"""Transcripts: a conversation is a tree in an append-only file (spec 1). Pure: no I/O."""
