"""Auto mode: decides the next step of each worker, when the fleet is parked, and when auto mode stops."""
