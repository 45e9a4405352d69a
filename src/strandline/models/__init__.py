"""Models: adapters to providers and the local model. An edge: chosen in `wiring` only."""
