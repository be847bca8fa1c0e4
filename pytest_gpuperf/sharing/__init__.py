"""Locks by which many processes share one device, or have it alone while timing."""
