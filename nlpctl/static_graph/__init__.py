"""Reading every static parameter format, name maps, matching, the conversion report."""
