"""Containment: what an agent sees and may write, and whether this machine can enforce it."""
