"""Jobs outlive whoever asked: a queue in the store, one supervisor process per running job."""
