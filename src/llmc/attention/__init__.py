"""What waits for a person: one list, from one function. Pure."""
