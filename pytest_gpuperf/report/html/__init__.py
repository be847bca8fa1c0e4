"""One run as a page of HTML: a file that needs nothing beside it, and no network."""
