"""Goals: plans, the rules that drive them, and their store."""
