"""From a trained network to graphs: translating, converting, comparing, reporting, arranging for other servers."""
