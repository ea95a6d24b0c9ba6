"""The rules of the supervisor: whether the daemon is well, and what follows when it is not. Pure."""
