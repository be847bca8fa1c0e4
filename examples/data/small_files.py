"""A dataset as many datasets come: two small files a sample."""

from __future__ import annotations


def write_small_files(folder, samples):
    """Write each sample's image and label; return the paths of the images."""
    paths = []
    for index, (image, label) in enumerate(samples):
        path = folder / f"{index:06d}.bin"
        path.write_bytes(image)
        path.with_suffix(".cls").write_text(str(label))
        paths.append(path)
    return paths


def read_small_files(paths):
    """Yield the samples again."""
    for path in paths:
        yield path.read_bytes(), int(path.with_suffix(".cls").read_text())
