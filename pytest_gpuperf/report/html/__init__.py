"""One run as an HTML page: one file that needs no other and no network."""
