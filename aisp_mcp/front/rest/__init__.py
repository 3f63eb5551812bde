"""REST API over the registry and the store: JSON, paging, OpenAPI and server-sent events. Start with `app.py`."""
