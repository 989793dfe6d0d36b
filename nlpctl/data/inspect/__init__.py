"""Data inspection before training: labels, lengths, repetitions, contradictions, suspicious rows.

rows.read_rows --> lengths, duplicates (near_duplicates), suspicious --> profile.inspect --> page
"""
