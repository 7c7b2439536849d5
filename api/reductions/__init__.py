"""Reductions, scans, sorting and counting: functions along a dimension that need Python around the generated ops."""
