"""What needs the user: one list, from one function. Pure."""
