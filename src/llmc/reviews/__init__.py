"""Reviews: the diff as rows, comments on its lines, and the rounds between the user and a worker."""
