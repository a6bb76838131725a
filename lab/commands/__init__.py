"""What the command line offers besides a run's parts: one file each."""
