"""A run is one fresh process: the fork server, what it is asked, what it answers."""
