"""Plans and scores of candidates. Imports no Paddle."""
