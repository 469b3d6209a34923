"""Passes: functions from Graph to Graph."""
