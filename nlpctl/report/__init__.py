"""Self-contained HTML pages: one file with inline SVG plots, without scripts or network access.

page(title, lead, [Section("Labels", [table(...), bars(...)])]) -> text of the file
"""
