"""Verdicts and baselines as text; no number is judged here."""
