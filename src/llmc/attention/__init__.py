"""The attention list: everything that needs the user, from one pure function."""
