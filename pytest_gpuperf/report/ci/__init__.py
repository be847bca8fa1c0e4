"""Reports in the forms that CI services read."""
