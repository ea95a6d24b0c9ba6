"""The rules of auto mode: what a worker needs next, when the fleet waits, when it stops. Pure."""
