"""Generated inputs of the examples and their file formats, one a file."""
