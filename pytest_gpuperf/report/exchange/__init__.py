"""Measurements in the formats of other benchmark tools."""
