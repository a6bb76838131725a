"""One file per algorithm: rank count, or Layout -> Schedule."""
