"""The networks: torch only."""
