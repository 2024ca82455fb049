"""From the records of searches to tables, pictures and the page of results."""
