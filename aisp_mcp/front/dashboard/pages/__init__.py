"""One module per page: `build(request)` returns the data that the template of the same name shows."""
