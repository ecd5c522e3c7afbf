"""Serving: graphs for buckets of shapes in a cache, one arena for all of them, and what is seen of it."""
