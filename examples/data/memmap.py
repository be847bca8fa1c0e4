"""All images in one file that is mapped into memory, as one tensor."""

from __future__ import annotations

import mmap

import torch


def write_packed(path, images):
    """Write *images* one behind the other."""
    with path.open("wb") as file:
        file.writelines(images)


def mapped(path):
    """Return the images as a tensor whose pages are read when they are looked at.

    The mapping is private: what is written to the tensor does not reach the file.
    """
    with path.open("rb") as file:
        pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    return torch.frombuffer(pages, dtype=torch.uint8).view(-1, 28, 28)
