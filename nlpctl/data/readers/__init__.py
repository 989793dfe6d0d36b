"""Files into rows: a module per format. Every row, good or bad, knows its file and line."""
