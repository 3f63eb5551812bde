"""Records as bytes: csv, json, markdown, html and pdf. Reads records, never measures or judges."""
