"""The built-in tools of an agent's workspace, and its files that enter the system prompt."""
