"""One file per pattern: rank count and demand -> the ends of every flow."""
