"""The phases of one measurement, each in its own file; ``phases`` runs them in order."""
