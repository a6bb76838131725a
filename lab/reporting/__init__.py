"""What is written of a run: folder, tables, report; and results side by side."""
