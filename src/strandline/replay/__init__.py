"""Replaying recorded conversations: what each would have cost under other rules."""
