"""A trace as a folder of pages that any web host can serve, without a server of ours."""
