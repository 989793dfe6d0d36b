"""A look at the data before training: labels, lengths, repetitions, contradictions, rows that look wrong.

rows.read_rows --> lengths, duplicates (near_duplicates), suspicious --> profile.inspect --> page
"""
