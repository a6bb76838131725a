"""The report's pictures, one file each: numbers in, SVG text out. Drawn by matplotlib, which is imported here alone."""
