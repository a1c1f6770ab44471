"""The pages: documented values that the templates turn into HTML."""
