"""The words of the project as frozen values; nothing here reads, measures or decides."""
