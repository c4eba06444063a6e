"""A run's record made into an account of where the cycles went."""
