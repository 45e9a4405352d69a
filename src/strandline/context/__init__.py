"""Context: what the model sees, chosen and explained (spec 3). Pure: no I/O."""
