"""Models for other engines, each proven by translating with both."""
