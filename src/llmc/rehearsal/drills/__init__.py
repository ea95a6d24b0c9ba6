"""Drills: failures of an unattended fleet, caused for real in a scratch root."""
