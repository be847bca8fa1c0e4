"""Locks by which many processes share one device, or have it alone while timing.

Begin with:

- ``device_lock.DeviceLock``: one measuring process a device
- ``exit_report.last_words``: what a dead process printed
"""
