"""NVIDIA GPUs as devices: events, allocator, NVML and the lines of syncs."""
