"""Drills: each failure that an unattended fleet can meet, made to happen for real in a scratch root."""
