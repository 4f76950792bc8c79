"""Subtitles."""
