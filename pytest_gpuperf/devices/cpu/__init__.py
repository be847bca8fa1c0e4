"""The CPU as a device: clock, live bytes, syncs that a GPU would have, neighbours."""
