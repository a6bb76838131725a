"""One file per algorithm: rank count -> Schedule."""
