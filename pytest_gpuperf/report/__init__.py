"""Verdicts and baselines as text; no number is judged here.

Begin with:

- ``document``: the blocks that all reports are made of, and their form on a terminal
- ``screen.failure.Failure``: why a test failed, and what to type
- ``screen.summary.summary_lines``: the table of a run
- ``json.dumps``: ``results.json``
- ``html.page.page_text``: the page of ``gpuperf report``
- ``ci.job_summary.run_markdown``: the summary of a job
- ``command.refresh_command``: commands to type
- ``secrets.masked``: what nobody may read
"""
