"""Pages for people: one HTML file with everything in it, plots as inline SVG, no script, no network.

page(title, lead, [Section("Labels", [table(...), bars(...)])]) -> text of the file
"""
