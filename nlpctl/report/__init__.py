"""Results as tables, figures and sections (model.py), and what draws them: text.py, markdown.py, page.py, notebook.py.

A page is one file with inline SVG plots, without network access, and but for the ticks of an audit without scripts.
"""
