"""Verdicts and baselines as text; no number is judged here.

Begin with:

- ``screen.failure.failure_text``: why a test failed, and what to type
- ``screen.summary.summary_lines``: the table of a run
- ``json.dumps``: ``results.json``
- ``html.page.page_text``: the page of ``gpuperf report``
- ``ci.job_summary.run_markdown``: the summary of a job
- ``command.refresh_command``: commands to type
- ``secrets.masked``: what nobody may read
"""
