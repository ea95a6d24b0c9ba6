"""The rules about tasks: what a file says, what waits for what, which comes next. Pure."""
