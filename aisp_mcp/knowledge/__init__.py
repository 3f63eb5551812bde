"""Facts as data, each with source, date and confidence."""
