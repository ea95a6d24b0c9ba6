"""Reviews: the diff in rows, comments on its lines, and the rounds between you and a worker."""
