"""Processes of our own, and locks by which they share a device or have it alone.

Begin with:

- ``device_lock.DeviceLock``: one measuring process a device, and ``Queue`` for it
- ``processes.spawn``: a function in a process of its own
"""
