"""The judge: measurements, budgets and baselines in, verdicts out; no clock, no files."""
