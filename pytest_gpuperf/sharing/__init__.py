"""Many processes on one device: who uses it, and who has it alone while timing."""
