"""Auto mode: what a worker needs next, when the fleet is parked, and when auto mode stops."""
