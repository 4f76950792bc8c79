"""`transformer-mt new`: a config for a user's files."""
