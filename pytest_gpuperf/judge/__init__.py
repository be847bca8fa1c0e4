"""The judge: measurements, budgets and baselines in, verdicts out; no clock, no files.

Begin with:

- ``calls.judge_calls``: the verdicts of a call of ``gpuperf(step)``
- ``verdict.judge``: one metric against its budget and its baseline
- ``stored_times.judge_stored``: who is slower than the stored runs: REGRESSED,
  INCONCLUSIVE or PASS
- ``exact.judge_exact``: counts and bytes
- ``budget.judge_time_budget``: a ceiling on a time
- ``calls.settle_suite``: whether the machine became slower as a whole
- ``comparison.smallest_blamed``: the smallest slowdown that can be blamed
"""
