"""From an experiment to what will run and what it should show. Nothing is made yet; most files are pure."""
