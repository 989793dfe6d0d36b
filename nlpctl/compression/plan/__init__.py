"""What is planned, and what candidates are worth. Imports no Paddle."""
