"""Locks by which many processes share one device, or have it alone while timing.

Begin with:

- ``device_lock.DeviceLock``: one measuring process a device
- ``processes.spawn``: a function in a process of its own
"""
