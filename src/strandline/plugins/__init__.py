"""Plugins: code of others that adds context engines, tools and hooks (spec 3, Engine slot)."""
