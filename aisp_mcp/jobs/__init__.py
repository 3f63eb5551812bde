"""Jobs outlive their caller: a queue in the store, one supervisor process per running job."""
